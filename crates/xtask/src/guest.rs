//! `cargo xtask guest`: commands in a throw-away virtual machine that has a kernel RDMA device.
//!
//! Real verbs need a kernel with RDMA and a device, which a development machine or a container rarely has. QEMU boots a
//! Debian kernel with Soft-RoCE (rdma_rxe) from an initial ramdisk of a few files; nothing is installed in the guest and nothing
//! outlives it. Emulation alone is used, so that it runs inside other virtual machines too; a boot takes about 20 s.
//!
//! In the guest: `rxe0` on `near` (10.0.0.1, MTU 9000), or with `--hosts N` the network namespaces `host1` to `hostN` on one bridge, each
//! with `rxeI` on `nearI` (10.0.0.I): `ip netns exec host2 PROGRAM` runs there, `ip link set far2 down` cuts it off. A fresh ext4
//! at /data, a tmpfs at /tmp, `memlock` unlimited, the files given with `--file` in /guest.
//!
//! Kept between runs, in the user's cache folder (`windlass/guest`): the kernel and the package lists that it was found with.

mod bench;
mod boot;
mod demo;
mod image;
mod kernel;
mod system;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::Context;
use crate::exec::Run;
use crate::failures::{self, Failure};
use crate::install::{self, BUILD_PACKAGES};
use crate::report::{Cure, Outcome};
use crate::tally::Tally;

/// What the guest is made with and of, besides QEMU (which see [`system`]) and the kernel.
pub(crate) const PACKAGES: &[&str] = &[
    "busybox-static",
    "cpio",
    "kmod",
    "xz-utils",
    "e2fsprogs",
    "iproute2",
    "ibverbs-utils",
    "ibverbs-providers",
    "libibverbs1",
    "perftest",
];

/// Room for the logs of three members, whose segments are allocated ahead.
const DEMO_DISK_MIB: u32 = 1024;

/// The command that makes the guest possible.
const INSTALL: &str = "cargo xtask guest --install";

/// What to boot and to run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Install what is missing first: Debian packages (as root), QEMU, the guest's kernel
    #[arg(long)]
    install: bool,
    /// Network namespaces on one bridge, each with an RDMA device; with 0 one device in the first namespace
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=9))]
    hosts: u32,
    /// A program or file for the guest's folder /guest, or elsewhere as HOST:GUEST; a program's libraries come along
    #[arg(long, value_name = "HOST[:GUEST]")]
    file: Vec<String>,
    /// Memory of the guest
    #[arg(long, default_value_t = 4096)]
    memory_mib: u32,
    /// Size of the ext4 at /data
    #[arg(long, default_value_t = 512)]
    disk_mib: u32,
    /// Processors of the guest
    #[arg(long, default_value_t = 2)]
    processors: u32,
    /// The guest is ended after so long
    #[arg(long, default_value_t = 1200)]
    seconds: u64,
    /// Takeovers from frozen primaries in the demos on three hosts, and writes held back through a revocation
    #[arg(long, default_value_t = demo::TAKEOVERS, value_parser = clap::value_parser!(u32).range(3..=1000))]
    takeovers: u32,
    /// Only the demos on three hosts
    #[arg(long)]
    demos: bool,
    /// With --demos: only those of these names
    #[arg(long, value_name = "NAME", requires = "demos", value_parser = demo::NAMES)]
    only: Vec<String>,
    /// Measure replication over the device beside raw operations and perftest, on three hosts
    #[arg(long)]
    bench: bool,
    /// With --bench: a small run, to see that it works
    #[arg(long, requires = "bench")]
    quick: bool,
    /// With --bench: only these groups
    #[arg(long, value_name = "GROUP", requires = "bench", value_parser = bench::GROUPS)]
    group: Vec<String>,
    /// A shell command; without one the tests of windlass-verbs are run, in one process and between two hosts
    #[arg(last = true)]
    command: Vec<String>,
}

/// A file of the host and where it goes in the guest.
struct Placed {
    from: PathBuf,
    to: String,
}

/// A guest to boot.
struct Guest {
    hosts: u32,
    files: Vec<Placed>,
    memory_mib: u32,
    disk_mib: u32,
    processors: u32,
    limit: Duration,
    commands: String,
}

/// What the guest came to: its output and the status of its commands, if it got that far.
struct Came {
    output: String,
    status: Option<i32>,
    how: String,
}

/// The task of the command line.
pub(crate) fn command(context: &Context, arguments: &Arguments) -> ExitCode {
    if arguments.install {
        install::packages(context);
        install(context);
    }
    let outcome = if arguments.bench {
        bench::run(context, arguments)
    } else if arguments.command.is_empty() {
        all(context, arguments)
    } else {
        shell(context, arguments)
    };
    match outcome {
        Outcome::Passed(tally) => {
            println!("PASSED{}", cases(tally));
            ExitCode::SUCCESS
        }
        Outcome::Failed { tally, why } => {
            println!("FAILED: {why}{}", cases(tally));
            ExitCode::FAILURE
        }
        Outcome::Skipped { why, cure } => {
            println!("SKIPPED: {why}");
            match cure {
                Cure::Install(cure) | Cure::Elsewhere(cure) => println!("         run: {cure}"),
            }
            // Not run is not passed: a status of its own.
            ExitCode::from(77)
        }
    }
}

fn cases(tally: Tally) -> String {
    if tally.total() == 0 {
        return String::new();
    }
    format!(" ({} cases passed, {} failed, {} skipped)", tally.passed, tally.failed, tally.skipped)
}

/// The step of `cargo xtask test`: the tests of windlass-verbs against a kernel's device.
pub(crate) fn step(context: &Context) -> Outcome {
    let defaults = Arguments {
        install: false,
        hosts: 0,
        file: Vec::new(),
        memory_mib: 4096,
        disk_mib: 512,
        processors: 2,
        seconds: 1200,
        takeovers: demo::TAKEOVERS,
        demos: false,
        only: Vec::new(),
        bench: false,
        quick: false,
        group: Vec::new(),
        command: Vec::new(),
    };
    all(context, &defaults)
}

/// The tests of windlass-verbs, then the demos.
fn all(context: &Context, arguments: &Arguments) -> Outcome {
    if arguments.demos {
        return demos(context, arguments);
    }
    let tests = verbs_tests(context, arguments);
    let Outcome::Passed(tests) = tests else { return tests };
    match demos(context, arguments) {
        Outcome::Passed(mut sum) => {
            sum += tests;
            Outcome::Passed(sum)
        }
        Outcome::Failed { mut tally, why } => {
            tally += tests;
            Outcome::Failed { tally, why }
        }
        skipped @ Outcome::Skipped { .. } => skipped,
    }
}

/// Installs what a guest needs beyond the packages: QEMU and the kernel. Says what could not be.
pub(crate) fn install(context: &Context) {
    system::install_qemu(context);
    if let Err(why) = kernel::fetch(context) {
        println!("   no kernel for the guest: {why}");
    }
}

/// Why no guest can be booted here, if so.
fn missing() -> Option<Outcome> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        let why = "the guest needs Linux on x86-64".into();
        let cure = Cure::Elsewhere("such a machine".into());
        return Some(Outcome::Skipped { why, cure });
    }
    let packages = install::missing_packages(PACKAGES);
    let why = if !packages.is_empty() {
        format!("the guest needs the packages {}", packages.join(", "))
    } else if !system::has_qemu() {
        "no qemu-system-x86_64".into()
    } else if kernel::cached().is_none() {
        "no kernel for the guest in the cache".into()
    } else {
        return None;
    };
    Some(Outcome::Skipped { why, cure: Cure::Install(INSTALL.into()) })
}

/// Runs the command line's own commands.
fn shell(context: &Context, arguments: &Arguments) -> Outcome {
    if let Some(skipped) = missing() {
        return skipped;
    }
    let files = arguments.file.iter().map(|word| place(context, word)).collect();
    let came = match boot(context, guest(arguments, files, arguments.command.join(" "))) {
        Ok(came) => came,
        Err(why) => return Outcome::failed(why),
    };
    match came.status {
        Some(0) => Outcome::passed(),
        Some(status) => Outcome::failed(format!("the commands ended with status {status}")),
        None => Outcome::failed(format!("the guest did not finish: {}", came.how)),
    }
}

/// Builds the tests of windlass-verbs, the examples on the fabric and the command, runs them against the guest's device, then between hosts.
fn verbs_tests(context: &Context, arguments: &Arguments) -> Outcome {
    let packages = install::missing_packages(BUILD_PACKAGES);
    if !packages.is_empty() {
        let why = format!("windlass-verbs needs {} to build", packages.join(", "));
        return Outcome::Skipped { why, cure: Cure::Install(INSTALL.into()) };
    }
    if let Some(skipped) = missing() {
        return skipped;
    }
    let mut programs = Programs::default();
    for what in BUILDS {
        match built(context, &[&["test", "--locked", "--no-run"], what].concat()) {
            Ok(built) => programs.join(built),
            Err(why) => return Outcome::failed(why),
        }
    }
    let Programs { tests, binaries } = programs;
    let Some(suite) = tests.iter().find(|program| name(program).starts_with("on_device")) else {
        return Outcome::failed("cargo named no test program on_device");
    };
    let mut sum = Tally::default();
    for (hosts, commands) in
        [(arguments.hosts, here(&tests)), (3, between_hosts(&name(suite), arguments.takeovers))]
    {
        let place =
            |program: &PathBuf| Placed { from: program.clone(), to: format!("/guest/{}", name(program)) };
        let files = tests.iter().chain(&binaries).map(place).collect();
        let came = match boot(context, Guest { hosts, ..guest(arguments, files, commands) }) {
            Ok(came) => came,
            Err(why) => return Outcome::failed(why),
        };
        let tally = Tally::from_output(&came.output);
        sum += tally;
        let why = match came.status {
            Some(0) if tally.passed > 0 => continue,
            Some(0) => "no test ran".into(),
            Some(status) => format!("the tests ended with status {status}"),
            None => format!("the guest did not finish: {}", came.how),
        };
        if came.status.is_some() {
            // Otherwise the machine itself failed, which was noted as any command's failure is.
            context.note(failures::in_output(&came.output));
        }
        return Outcome::Failed { tally: sum, why };
    }
    Outcome::Passed(sum)
}

/// Runs a build of cargo's: the programs that came of it.
fn built(context: &Context, words: &[&str]) -> Result<Programs, String> {
    // First for people, whom a compiler's errors are for; then, with nothing left to build, for the names of the programs.
    let finished = Run::cargo(context, words).finish(context, "guest-build");
    if !finished.success {
        return Err(format!("cargo {} failed: {}", words.join(" "), finished.how));
    }
    let words = [words, &["--message-format=json"]].concat();
    let finished = Run::cargo(context, &words).finish(context, "guest-programs");
    let mut programs = Programs::default();
    programs.add(&finished.output);
    Ok(programs)
}

/// Builds the command with the verbs provider, and what lets members go wrong, and runs its demo on three hosts.
fn demos(context: &Context, arguments: &Arguments) -> Outcome {
    let packages = install::missing_packages(BUILD_PACKAGES);
    if !packages.is_empty() {
        let why = format!("the feature verbs needs {} to build", packages.join(", "));
        return Outcome::Skipped { why, cure: Cure::Install(INSTALL.into()) };
    }
    if let Some(skipped) = missing() {
        return skipped;
    }
    // Optimised: three members and their client share two emulated processors, and have to keep up with the protocol's times.
    let words = ["build", "--locked", "--release", "-p", "windlass-cli", "--features", "verbs,faults"];
    let built = match built(context, &words) {
        Ok(built) => built,
        Err(why) => return Outcome::failed(why),
    };
    let Some(program) = built.binaries.into_iter().find(|path| name(path) == "windlass") else {
        return Outcome::failed("cargo named no program windlass");
    };
    let files = vec![Placed { from: program, to: "/guest/windlass".into() }];
    let plain = guest(arguments, files, demo::commands(arguments.takeovers, &arguments.only));
    let limit = plain.limit.max(Duration::from_secs(demo::seconds(arguments.takeovers, &arguments.only)));
    let disk_mib = plain.disk_mib.max(DEMO_DISK_MIB);
    let came = match boot(context, Guest { hosts: 3, disk_mib, limit, ..plain }) {
        Ok(came) => came,
        Err(why) => return Outcome::failed(why),
    };
    let (tally, complaints) = demo::judge(&came.output, arguments.takeovers, &arguments.only);
    if came.status != Some(0) {
        return Outcome::Failed { tally, why: format!("the guest did not finish the demos: {}", came.how) };
    }
    if complaints.is_empty() {
        return Outcome::Passed(tally);
    }
    for complaint in &complaints {
        println!("   {complaint}");
    }
    context.note(complaints.iter().map(|complaint| Failure::named(complaint)));
    Outcome::Failed { tally, why: complaints.join("; ") }
}

/// Without a device the tests would say SKIPPED; here that is a failure. The folder is on a disk.
const SETTING: &str = "export WINDLASS_VERBS_DEVICE=required WINDLASS_DISK_FOLDER=/data\n\
                       export WINDLASS_EXAMPLES_FABRIC=verbs WINDLASS_EXAMPLES_FOLDER=/guest\n\
                       export WINDLASS_PROGRAM=/guest/windlass\n";

/// What cargo builds for the guest: tests, and the programs that they run.
const BUILDS: [&[&str]; 2] = [
    &["-p", "windlass-verbs", "-p", "fabric-examples", "--features", "fabric-examples/verbs"],
    &["-p", "windlass-cli", "--features", "verbs", "--test", "doctor"],
];

/// Every test program, both ends of each connection in one process.
fn here(programs: &[PathBuf]) -> String {
    let mut commands = format!("{SETTING}all=0\n");
    for program in programs.iter().map(|program| name(program)) {
        // Of the command's tests those that need a device; the others need the repository, and have run outside.
        let which = if program.starts_with("doctor-") { "--ignored" } else { "" };
        commands.push_str(&format!(
            "echo \"Running {program}\"\n/guest/{program} {which} --test-threads=1 || all=1\n"
        ));
    }
    commands + "exit $all\n"
}

/// The suite between two hosts, which reach each other over a bridge; then an example around a ring of three.
fn between_hosts(program: &str, rounds: u32) -> String {
    format!(
        "{SETTING}echo \"Running {program} on two hosts\"\n\
         ip netns exec host2 /guest/{program} --passive 10.0.0.2:7471 >/tmp/passive 2>&1 &\n\
         ip netns exec host1 /guest/{program} --active 10.0.0.2:7471\n\
         active=$?\n\
         wait $! && [ $active -eq 0 ] || {{ echo 'The passive end:'; cat /tmp/passive; exit 1; }}\n\
         echo 'Running ring_allreduce on three hosts'\n\
         ranks=10.0.0.1:7481,10.0.0.2:7481,10.0.0.3:7481\n\
         for rank in 0 1 2; do\n\
           ip netns exec host$((rank + 1)) /guest/ring_allreduce --fabric verbs --ranks $ranks --rank $rank &\n\
           ring=\"$ring $!\"\n\
         done\n\
         for process in $ring; do wait $process || exit 1; done\n"
    ) + &held_back(program, rounds)
        + &faults(program)
}

/// Writes that the network holds back through a revocation, and as a control some that it holds back without one.
fn held_back(program: &str, rounds: u32) -> String {
    format!(
        "echo 'Running {program} with writes held back'\n\
         export WINDLASS_HELD_ROUNDS={rounds} WINDLASS_HELD_INTERFACE=near1\n\
         ip netns exec host2 /guest/{program} --held-owner /tmp/held >/tmp/owner 2>&1 & owner=$!\n\
         ip netns exec host1 /guest/{program} --held-writer /tmp/held; writer=$?\n\
         wait $owner && [ $writer -eq 0 ] || {{ echo 'The owner:'; cat /tmp/owner; exit 1; }}\n"
    )
}

/// Faults between two of the hosts, with writes under way: the owner of the memory killed, the link cut, a device taken away at either
/// end. The last host that is struck has no device afterwards.
fn faults(program: &str) -> String {
    format!(
        "all=0\n\
         fault() {{\n\
         echo \"Running {program} with a fault: $1\"\n\
         ip netns exec host2 /guest/{program} --passive 10.0.0.2:$2 --fault >/tmp/passive 2>&1 & passive=$!\n\
         ip netns exec host1 /guest/{program} --active 10.0.0.2:$2 --fault \"${{3//PASSIVE/$passive}}\" && active=0 || active=1\n\
         wait $passive; passive=$?\n\
         grep '^   ' /tmp/passive\n\
         [ $active -eq 0 ] && [ $passive -eq $4 ] && return\n\
         all=1; echo \"The passive end ($passive):\"; cat /tmp/passive\n\
         }}\n\
         fault 'peer killed' 7472 'kill -9 PASSIVE' 137\n\
         fault 'link down' 7473 'ip link set near1 down' 0\n\
         ip netns exec host1 ip link set near1 up; sleep 1\n\
         fault 'own device removed' 7474 'rdma link del rxe1 & sleep 1' 0\n\
         ip netns exec host1 rdma link add rxe1 type rxe netdev near1; rdma dev set rxe1 netns host1; sleep 1\n\
         fault 'device of the peer removed' 7475 'ip netns exec host2 rdma link del rxe2 & sleep 1' 0\n\
         exit $all\n"
    )
}

fn name(program: &Path) -> String {
    program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn guest(arguments: &Arguments, files: Vec<Placed>, commands: String) -> Guest {
    Guest {
        hosts: arguments.hosts,
        files,
        memory_mib: arguments.memory_mib,
        disk_mib: arguments.disk_mib,
        processors: arguments.processors,
        limit: Duration::from_secs(arguments.seconds),
        commands,
    }
}

/// Makes the image in a folder of its own, which goes away with the guest, and boots it.
fn boot(context: &Context, guest: Guest) -> Result<Came, String> {
    let kernel = kernel::cached().ok_or("no kernel in the cache")?;
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let ramdisk = image::ramdisk(&guest, &kernel, folder.path())?;
    let disk = image::disk(guest.disk_mib, folder.path())?;
    Ok(boot::run(context, &guest, &kernel, &ramdisk, &disk))
}

/// `HOST[:GUEST]`; a relative path counts from where the command was called.
fn place(context: &Context, word: &str) -> Placed {
    let (from, to) = match word.split_once(':') {
        Some((from, to)) => (PathBuf::from(from), to.to_string()),
        None => {
            let from = PathBuf::from(word);
            let to = format!("/guest/{}", name(&from));
            (from, to)
        }
    };
    let from = match std::env::current_dir() {
        Ok(here) => here.join(from),
        Err(_) => context.root.join(from),
    };
    Placed { from, to }
}

/// What cargo has built for the guest.
#[derive(Default)]
struct Programs {
    /// Programs of tests; those that hold the unit tests of another program are left out.
    tests: Vec<PathBuf>,
    /// The programs themselves, which one of the tests runs.
    binaries: Vec<PathBuf>,
}

impl Programs {
    fn join(&mut self, mut others: Programs) {
        self.tests.append(&mut others.tests);
        self.binaries.append(&mut others.binaries);
    }

    /// Adds the programs that cargo's messages name.
    fn add(&mut self, messages: &str) {
        let parsed = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        for message in parsed.filter(|message| message["reason"] == "compiler-artifact") {
            let Some(executable) = message["executable"].as_str().map(PathBuf::from) else { continue };
            match (message["profile"]["test"] == true, message["target"]["kind"][0] == "bin") {
                (true, false) => self.tests.push(executable),
                (false, true) => self.binaries.push(executable),
                (true, true) | (false, false) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_that_cargo_names() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","profile":{"test":false},"target":{"kind":["bin"]},"executable":"/t/echo"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"target":{"kind":["bin"]},"executable":"/t/deps/echo-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"target":{"kind":["test"]},"executable":"/t/deps/conformance-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"target":{"kind":["lib"]},"executable":null}"#,
            "\nnot json\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let mut found = Programs::default();
        found.add(messages);
        assert_eq!(found.tests, [PathBuf::from("/t/deps/conformance-1")]);
        assert_eq!(found.binaries, [PathBuf::from("/t/echo")]);
    }
}
