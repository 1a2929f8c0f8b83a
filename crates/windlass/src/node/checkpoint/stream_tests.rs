//! One end of a stream against a peer that does what no peer should.

use windlass_log::Epoch;

use super::super::give;
use super::super::wire::CHECKPOINT_CHUNK_BYTES_MAX;
use super::*;

const AT: Lsn = Lsn(1 << 20);

fn begin() -> Frame {
    Frame::Begin { at: AT, epoch: Epoch::NONE, bytes: None }
}

/// Both ends of a connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (dialled, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (dialled.unwrap(), accepted.unwrap().0)
}

fn on_a_runtime<T>(what: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
}

/// What a taker that takes nothing makes of these bytes, behind which the giver leaves: the frames before, and how it ended.
fn taken_of(bytes: &[u8]) -> (Vec<Frame>, Result<(), CheckpointError>) {
    on_a_runtime(async {
        let (ours, mut theirs) = pair().await;
        let (sender, mut frames) = mpsc::channel(ARRIVED);
        let (_taken, credits) = mpsc::channel(ARRIVED);
        let giving = async move {
            let mut question = [0; wire::ASK_BYTES];
            theirs.read_exact(&mut question).await.unwrap();
            assert_eq!(wire::asked(&question), Some(AT));
            // The taker may have left already.
            let _ = theirs.write_all(bytes).await;
            let _ = theirs.shutdown().await;
            // Until it leaves, so that nothing is lost of what was written.
            let _ = theirs.read(&mut [0; 1]).await;
        };
        let (outcome, ()) = tokio::join!(serve(ours, AT, &sender, credits), giving);
        drop(sender);
        let mut all = Vec::new();
        while let Some(arrived) = frames.recv().await {
            all.push(arrived.unwrap().1);
        }
        (all, outcome)
    })
}

fn refused_as(bytes: &[u8]) -> WireError {
    match taken_of(bytes).1 {
        Err(CheckpointError::Wire(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_stream_ends_with_its_own_error_and_nothing_of_it_is_passed_on() {
    let chunk = Frame::Chunk(vec![7; 1000]).encode(1);
    let with = |bytes: &[u8]| [&begin().encode(0)[..], bytes].concat();

    assert!(matches!(refused_as(&[0xa5; 4096]), WireError::Sequence { expected: 0, .. }));
    let mut long = chunk.clone();
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(refused_as(&with(&long)), WireError::Length { sequence: 1, kind: 2, bytes: u32::MAX });
    let mut empty = chunk.clone();
    empty[4..8].copy_from_slice(&0u32.to_le_bytes());
    assert_eq!(refused_as(&with(&empty)), WireError::Length { sequence: 1, kind: 2, bytes: 0 });
    let mut flipped = chunk.clone();
    *flipped.last_mut().unwrap() ^= 1;
    assert!(matches!(refused_as(&with(&flipped)), WireError::Checksum { sequence: 1, .. }));
    let mut unknown = chunk.clone();
    unknown[0] = 77;
    assert_eq!(refused_as(&with(&unknown)), WireError::Kind { sequence: 1, kind: 77 });
    let twice = with(&[&chunk[..], &chunk].concat());
    assert_eq!(refused_as(&twice), WireError::Sequence { expected: 2, found: 1 });

    // Cut anywhere: lost, and what was whole has arrived.
    let lost = Err(CheckpointError::Lost { bytes: 0 });
    assert_eq!(taken_of(&with(&chunk[..chunk.len() - 1])), (vec![begin()], lost.clone()));
    assert_eq!(taken_of(&[]), (vec![], lost));
}

#[test]
fn a_giver_that_sends_more_than_it_was_asked_for_is_cut_off_and_memory_stays_bounded() {
    let chunks =
        (1..40).flat_map(|sequence| Frame::Chunk(vec![1; CHECKPOINT_CHUNK_BYTES_MAX]).encode(sequence));
    let bytes: Vec<u8> = begin().encode(0).into_iter().chain(chunks).collect();
    let (frames, outcome) = taken_of(&bytes);
    assert_eq!(frames.len(), ARRIVED);
    assert_eq!(outcome, Err(WireError::Uncalled { sequence: ARRIVED as u64 }.into()));
}

#[test]
fn a_giver_sends_no_more_than_it_has_credits_for_and_says_meanwhile_that_it_is_there() {
    on_a_runtime(async {
        let (ours, mut theirs) = pair().await;
        let (frames, ready) = mpsc::channel(2);
        let giving = tokio::spawn(give::pass_on(ours, ready));
        let made = tokio::spawn(async move {
            for sequence in 0..3 * CREDITS as u64 {
                frames.send(give::ready(&Frame::Chunk(vec![1; 100]), sequence)).await.unwrap();
            }
        });
        let (mut chunks, mut pings, mut expected) = (0, 0, 0);
        let mut next = async || {
            let mut header = [0; HEADER_BYTES];
            let read = timeout(Duration::from_secs(20), theirs.read_exact(&mut header)).await;
            if !matches!(read, Ok(Ok(_))) {
                return None;
            }
            let header = Header::decode(&header, expected).unwrap();
            let mut body = vec![0; header.bytes];
            theirs.read_exact(&mut body).await.unwrap();
            let frame = header.frame(body).unwrap();
            if frame == Frame::Ping {
                // The taker is there, too, and has taken nothing.
                theirs.write_all(&[ALIVE]).await.unwrap();
            } else {
                expected += 1;
            }
            Some((frame, expected == CREDITS as u64))
        };
        while pings < 2 {
            let (frame, is_all) = next().await.unwrap();
            if frame == Frame::Ping {
                pings += u32::from(is_all);
            } else {
                chunks += 1;
            }
        }
        assert_eq!(chunks, CREDITS);
        // What no taker says.
        theirs.write_all(&[99]).await.unwrap();
        timeout(Duration::from_secs(20), giving).await.expect("it has left").unwrap();
        drop(theirs);
        assert!(timeout(Duration::from_secs(20), made).await.unwrap().is_err(), "nobody takes the rest");
    });
}
