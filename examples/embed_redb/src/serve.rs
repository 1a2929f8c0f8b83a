//! Operations from standard input, one a line, each acknowledged on standard output once it is committed.
//!
//! ```text
//!  in   WRITER NUMBER put KEY VALUE            out   ready REPLAYED            the store is open
//!       WRITER NUMBER delete KEY                     ok WRITER NUMBER          committed at the store's level
//!       WRITER NUMBER batch KEY VALUE ...            error WRITER NUMBER WHY   not acknowledged
//!       WRITER NUMBER checkpoint                     pair KEY VALUE            of a list
//!       WRITER NUMBER list                           closed                    after the end of the input
//! ```
//!
//! `WRITER` is the number of one of the threads. A writer carries out its lines in order; the writers run beside each other. A `-` in a
//! batch in place of a value deletes the key.

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::mpsc;

use embed_redb::{Op, Store};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Threads that write
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    writers: u16,
}

/// Serves until the end of the input.
pub(crate) fn run(store: &Store, args: &Args) -> Result<(), Box<dyn Error>> {
    say(&format!("ready {}\n", store.stats().replayed))?;
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let mut queues = Vec::new();
        for writer in 0..args.writers {
            let (queue, lines) = mpsc::channel::<String>();
            queues.push(queue);
            scope.spawn(move || {
                for line in lines {
                    let (number, rest) = line.split_once(' ').unwrap_or((&line, ""));
                    let answer = match carry_out(store, rest) {
                        Ok(list) => format!("{list}ok {writer} {number}\n"),
                        Err(error) => format!("error {writer} {number} {error}\n"),
                    };
                    // Whoever reads the answers is gone: so is the reason to go on.
                    if say(&answer).is_err() {
                        return;
                    }
                }
            });
        }
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            let (writer, rest) = line.split_once(' ').ok_or("a line begins with a writer")?;
            let queue = queues.get(writer.parse::<usize>()?).ok_or("there is no such writer")?;
            queue.send(rest.to_string())?;
        }
        Ok(())
    })?;
    say("closed\n")?;
    Ok(())
}

fn carry_out(store: &Store, line: &str) -> Result<String, Box<dyn Error>> {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["put", key, value] => store.put(key.as_bytes(), value.as_bytes())?,
        ["delete", key] => store.delete(key.as_bytes())?,
        ["batch", pairs @ ..] => store.write(&batch(pairs)?)?,
        ["checkpoint"] => {
            store.checkpoint()?;
        }
        ["list"] => {
            let mut list = String::new();
            store.scan(|key, value| {
                let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
                list.push_str(&format!("pair {key} {value}\n"));
                true
            })?;
            return Ok(list);
        }
        _ => return Err(format!("{line:?} is no operation").into()),
    }
    Ok(String::new())
}

fn batch(words: &[&str]) -> Result<Vec<Op>, &'static str> {
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a batch is made of pairs");
    }
    Ok(pairs
        .iter()
        .map(|[key, value]| if *value == "-" { Op::delete(*key) } else { Op::put(*key, *value) })
        .collect())
}

/// One write, so that the answers of several threads don't mix.
fn say(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
