//! The frames of the `tcp` fabric: what a requester sends and what an agent answers, however the network cuts them.

use windlass_tcp::frame::{
    ANSWER_BYTES_MAX, AnswerHeader, AnswerSplitter, FrameError, MESSAGE_BYTES_MAX, Piece, RequestHeader,
    RequestSplitter,
};

/// What a stream came to: headers and payloads, and the error that ended it.
#[derive(PartialEq, Eq, Debug)]
struct Stream<H> {
    frames: Vec<(H, Vec<u8>)>,
    error: Option<FrameError>,
}

/// The stream behind the first byte of `data`, in one piece and cut into pieces of as many bytes as the first says.
pub fn tcp_frames(data: &[u8]) {
    let Some((step, stream)) = data.split_first() else { return };
    let step = usize::from(*step).max(1);

    let whole = requests(stream, stream.len().max(1));
    assert_eq!(whole, requests(stream, step), "the network's cuts changed what was read");
    let mut again = Vec::new();
    for (header, payload) in &whole.frames {
        assert!(header.bytes <= MESSAGE_BYTES_MAX);
        again.extend(header.encode());
        again.extend(payload);
    }
    assert!(stream.starts_with(&again), "one form for each frame");

    let whole = answers(stream, stream.len().max(1));
    assert_eq!(whole, answers(stream, step), "the network's cuts changed what was read");
    let mut again = Vec::new();
    for (header, payload) in &whole.frames {
        assert!(payload.len() <= usize::try_from(ANSWER_BYTES_MAX).expect("small"));
        again.extend(header.encode());
        again.extend(payload);
    }
    assert!(stream.starts_with(&again), "one form for each frame");
}

fn requests(stream: &[u8], step: usize) -> Stream<RequestHeader> {
    let mut splitter = RequestSplitter::default();
    collect(stream, step, |input, take| Ok(splitter.next(input)?.map(take).is_some()))
}

fn answers(stream: &[u8], step: usize) -> Stream<AnswerHeader> {
    let mut splitter = AnswerSplitter::default();
    collect(stream, step, |input, take| Ok(splitter.next(input)?.map(take).is_some()))
}

/// Feeds a splitter piece by piece; `next` hands each piece on and says whether there was one.
fn collect<'a, H>(
    stream: &'a [u8],
    step: usize,
    mut next: impl FnMut(&mut &'a [u8], &mut dyn FnMut(Piece<'a, H>)) -> Result<bool, FrameError>,
) -> Stream<H> {
    let mut frames: Vec<(H, Vec<u8>)> = Vec::new();
    let mut take = |piece: Piece<'a, H>| match piece {
        Piece::Begin(header) => frames.push((header, Vec::new())),
        Piece::Payload { offset, bytes, last: _ } => {
            let (_, payload) = frames.last_mut().expect("a payload without a header");
            assert_eq!(u32::try_from(payload.len()), Ok(offset), "pieces follow one another");
            assert!(!bytes.is_empty());
            payload.extend(bytes);
        }
    };
    for mut input in stream.chunks(step) {
        loop {
            match next(&mut input, &mut take) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Stream { frames, error: Some(error) },
            }
        }
        assert!(input.is_empty(), "no piece, and bytes left");
    }
    Stream { frames, error: None }
}
