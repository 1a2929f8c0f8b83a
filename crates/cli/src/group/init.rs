//! `windlass group init`: a group's file, ready to start members with.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::exit::{Failure, Status};
use crate::log::output::say;
use crate::node::config::{
    RETENTION_BYTES, SCRUB_BYTES_PER_SECOND, SEGMENT_BYTES, SUSPICION_MS, random_hex, write_private,
};

/// The longest path of a Unix socket (unix(7): 108 bytes with the final zero).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What to make.
#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// How many members: 3 survive the loss of one, 5 of two
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    members: u8,
    /// Where the file, the members' logs and their sockets are to be. It is made if it does not exist
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// The first member's port on 127.0.0.1; the others have the next ones
    #[arg(long, value_name = "PORT", default_value_t = 7001, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    ports: u16,
    /// Accept a filesystem on which preallocation or locks are not known to hold
    #[arg(long)]
    any_filesystem: bool,
}

/// Writes the file and says how to go on.
pub(super) fn run(init: &Init) -> Result<(), Failure> {
    if init.members.is_multiple_of(2) {
        let fewer = init.members - 1;
        return Err(Failure::new(
            Status::Usage,
            format_args!(
                "a group of {} survives no more losses than one of {fewer}: use an odd number of members",
                init.members
            ),
        ));
    }
    std::fs::create_dir_all(&init.folder).map_err(|error| Failure::io(init.folder.display(), &error))?;
    let folder = init.folder.canonicalize().map_err(|error| Failure::io(init.folder.display(), &error))?;
    let file = folder.join("group.toml");
    let text = text(init, &folder)?;
    write_private(&file, &text).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            let message =
                format_args!("{} exists: it stays as it is; choose another --folder", file.display());
            Failure::new(Status::Refused, message)
        } else {
            Failure::io(file.display(), &error)
        }
    })?;
    say(format_args!(
        "{} has a new group of {} members and its secret. Start each in a terminal of its own:",
        file.display(),
        init.members
    ))?;
    for number in 1..=init.members {
        say(format_args!("  windlass node --config {} --member {number}", file.display()))?;
    }
    say(format_args!("and see how they stand:\n  windlass group --config {} status", file.display()))?;
    Ok(())
}

/// The file's text.
fn text(init: &Init, folder: &Path) -> Result<String, Failure> {
    let (log_id, secret) = (random_hex()?, format!("{}{}", random_hex()?, random_hex()?));
    let any_filesystem =
        if init.any_filesystem { "any_filesystem = true" } else { "# any_filesystem = false" };
    let mut text = format!(
        "# A windlass group. Every member is started with this file.\n\
         log_id = \"{log_id}\"\n\
         secret = \"{secret}\"   # proves who belongs to the group: keep this file as safe as the data\n\
         \n\
         # What may be changed, and what it is otherwise:\n\
         # level = \"durable\"              # or \"replicated\": acknowledged once in the memory of a majority\n\
         # segment_bytes = {SEGMENT_BYTES}\n\
         # retention_bytes = {RETENTION_BYTES}     # the most that is kept between the trim point and the end\n\
         # suspicion_ms = {SUSPICION_MS}               # silence after which a primary is suspected\n\
         # scrub_bytes_per_second = {SCRUB_BYTES_PER_SECOND} # of old segments, read and checked again and again; 0: none\n\
         {any_filesystem}         # accept a filesystem whose preallocation or locks are not known to hold\n"
    );
    for number in 1..=init.members {
        let (client, log) = (folder.join(format!("m{number}.sock")), folder.join(format!("m{number}")));
        let port = init.ports + u16::from(number) - 1;
        let Some(client) = client.to_str().filter(|client| client.len() <= SOCKET_PATH_BYTES_MAX) else {
            return Err(Failure::new(
                Status::Refused,
                format_args!(
                    "{}: a socket's path is UTF-8 and has at most {SOCKET_PATH_BYTES_MAX} bytes: choose a shorter --folder",
                    client.display()
                ),
            ));
        };
        // Escaped as TOML wants it; both begin with the same UTF-8 folder.
        let (client, log) =
            (toml::Value::from(client), toml::Value::from(log.to_string_lossy().into_owned()));
        write!(
            text,
            "\n[[members]]\n\
             number = {number}\n\
             control = \"127.0.0.1:{port}\"   # where the other members reach it\n\
             client = {client}   # the socket for clients on its machine\n\
             folder = {log}   # its log\n"
        )
        .expect("a string takes everything");
    }
    Ok(text)
}
