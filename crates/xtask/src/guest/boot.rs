//! Booting the guest and reading what it came to.

use std::path::Path;
use std::time::Duration;

use super::kernel::Kernel;
use super::system::QEMU;
use super::{Came, Guest};
use crate::Context;
use crate::exec::Run;

/// What the first process says when the commands have ended.
const STATUS: &str = "windlass-guest: status ";
/// Booting itself, beside the time that the commands have.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// What it says when the commands begin.
const READY: &str = "windlass-guest: ready";
/// Boots that are tried. An emulated kernel patches its own code while another processor runs it, and now and then dies of it before the
/// commands have begun; afterwards whatever happens is a result.
const BOOTS: u32 = 3;

/// Boots it, again where the kernel did not get as far as the commands, and waits for its end.
pub(super) fn run(context: &Context, guest: &Guest, kernel: &Kernel, ramdisk: &Path, disk: &Path) -> Came {
    let mut came = once(context, guest, kernel, ramdisk, disk);
    for _ in 1..BOOTS {
        if is_ready(&came.output) {
            break;
        }
        println!("   the guest's kernel did not start: once more");
        came = once(context, guest, kernel, ramdisk, disk);
    }
    came
}

/// Whether the commands have begun.
fn is_ready(output: &str) -> bool {
    output.lines().any(|line| line.trim() == READY)
}

fn once(context: &Context, guest: &Guest, kernel: &Kernel, ramdisk: &Path, disk: &Path) -> Came {
    let (memory, processors) = (guest.memory_mib.to_string(), guest.processors.to_string());
    let drive = format!("file={},if=virtio,format=raw,cache=unsafe", disk.display());
    let (image, ramdisk) = (kernel.image().display().to_string(), ramdisk.display().to_string());
    // Emulation alone: a virtual machine's own /dev/kvm is often there and does not work.
    let words = [
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-smp",
        &processors,
        "-m",
        &memory,
        "-display",
        "none",
        "-monitor",
        "none",
        "-serial",
        "stdio",
        "-nic",
        "none",
        "-no-reboot",
        "-drive",
        &drive,
        "-kernel",
        &image,
        "-initrd",
        &ramdisk,
        "-append",
        "console=ttyS0 panic=-1 quiet loglevel=3 mitigations=off",
    ];
    let finished = Run::new(context, QEMU, &words)
        .limit(BOOT_LIMIT + guest.limit)
        .show(|_| true)
        .finish(context, "guest");
    Came { status: status_in(&finished.output), output: finished.output, how: finished.how }
}

/// The status of the commands. The last line that says one counts: what the commands print comes before.
fn status_in(output: &str) -> Option<i32> {
    output.lines().rev().find_map(|line| line.strip_prefix(STATUS))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_did_not_start_ran_nothing() {
        assert!(is_ready("[ 1.0] x\nwindlass-guest: ready\r\ntest a ... ok\n"));
        assert!(!is_ready("[ 3.1] Kernel panic - not syncing: Fatal exception in interrupt\n"));
    }

    #[test]
    fn the_last_status_counts_and_none_is_no_success() {
        assert_eq!(status_in("x\nwindlass-guest: status 3\nwindlass-guest: status 0\n"), Some(0));
        assert_eq!(status_in("windlass-guest: ready\nKernel panic\n"), None);
    }
}
