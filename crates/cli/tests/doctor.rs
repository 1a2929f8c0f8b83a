//! `windlass doctor` as a user runs it: on this machine, whatever that is, and on trees recorded on others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A tree as it stands in `tests/trees`: `== PATH` begins a file, `-> PATH TARGET` is a symbolic link, `#` begins a comment in front.
fn unpack(name: &str, into: &Path) {
    let text =
        std::fs::read_to_string(format!("{}/tests/trees/{name}.tree", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut current = None;
    let make = |path: &Path| std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("== ") {
            current = Some(into.join(path));
            files.entry(into.join(path)).or_default();
        } else if let Some(link) = line.strip_prefix("-> ") {
            let (path, target) = link.split_once(' ').unwrap();
            make(&into.join(path));
            std::os::unix::fs::symlink(target, into.join(path)).unwrap();
            current = None;
        } else if let Some(path) = &current {
            let file = files.get_mut(path).unwrap();
            file.push_str(line);
            file.push('\n');
        } else {
            assert!(line.starts_with('#'), "{line:?} belongs to no file");
        }
    }
    for (path, text) in files {
        make(&path);
        std::fs::write(path, text).unwrap();
    }
}

/// What the command came to.
struct Told {
    status: i32,
    report: Value,
    /// The same for people.
    text: String,
}

impl Told {
    fn of(args: &[&str]) -> Told {
        let run = |more: &[&str]| {
            // In the guest it is not where it was built.
            let built = env!("CARGO_BIN_EXE_windlass").into();
            let mut command = Command::new(std::env::var_os("WINDLASS_PROGRAM").unwrap_or(built));
            command.arg("doctor").args(args).args(more).output().unwrap()
        };
        let (json, text) = (run(&["--json"]), run(&[]));
        assert_eq!(json.status.code(), text.status.code());
        Told {
            status: json.status.code().unwrap(),
            report: serde_json::from_slice(&json.stdout).unwrap(),
            text: String::from_utf8(text.stdout).unwrap(),
        }
    }

    /// Of a recorded tree.
    fn of_tree(name: &str, args: &[&str]) -> Told {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        unpack(name, folder.path());
        Told::of(&[&["--root", folder.path().to_str().unwrap()], args].concat())
    }

    /// The one finding of this name.
    fn finding(&self, id: &str) -> &Value {
        let all = self.report["findings"].as_array().unwrap();
        let found: Vec<_> = all.iter().filter(|finding| finding["id"] == id).collect();
        assert_eq!(found.len(), 1, "{id}: {found:?}");
        found[0]
    }

    fn level(&self, id: &str) -> &str {
        self.finding(id)["level"].as_str().unwrap()
    }
}

/// Every finding says what was seen and what it means; the counts and the status are those of the findings.
fn well_formed(told: &Told) {
    let findings = told.report["findings"].as_array().unwrap();
    let count = |level: &str| findings.iter().filter(|finding| finding["level"] == level).count();
    assert_eq!(told.report["version"], 1);
    for (name, level) in [("notes", "note"), ("warnings", "warning"), ("problems", "problem")] {
        assert_eq!(told.report[name], count(level), "{name}");
    }
    for finding in findings {
        for field in ["group", "id", "level", "seen", "means"] {
            assert!(finding[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {finding}");
        }
        // What is wrong comes with the command that changes it.
        if finding["level"] == "problem" || finding["level"] == "warning" {
            assert!(finding["run"].as_str().is_some_and(|run| !run.is_empty()), "{finding}");
        }
    }
    let status = if count("problem") > 0 { 2 } else { i32::from(count("warning") > 0) };
    assert_eq!(told.status, status, "{}", told.text);
    assert!(
        told.text.lines().all(|line| line.len() <= 110 || line.trim_start().starts_with("$ ")),
        "{}",
        told.text
    );
}

#[test]
fn this_machine_is_described_whatever_it_is() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = folder.path().join("log");
    let told = Told::of(&[log.to_str().unwrap(), "--fabric", "tcp"]);
    well_formed(&told);
    assert!(!log.exists(), "nothing is made");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    for id in ["build", "release", "processors", "filesystem", "space"] {
        told.finding(id);
    }
    assert!(told.finding("space")["values"]["free_bytes"].as_u64().unwrap() > 0);
    well_formed(&Told::of(&[]));
}

#[test]
fn a_machine_without_rdma_is_fine_for_tcp_and_not_for_verbs() {
    let told = Told::of_tree("none", &["/var/lib/log"]);
    well_formed(&told);
    assert_eq!(told.status, 0, "{}", told.text);
    for id in ["library", "modules", "devices"] {
        assert_eq!(told.level(id), "note", "{id}");
    }
    assert_eq!(told.level("memlock"), "ok", "tcp locks nothing");
    assert_eq!(told.level("disk"), "note", "a virtual disk");
    assert_eq!(told.finding("memory")["run"], "sysctl -w vm.swappiness=1");

    let told = Told::of_tree("none", &["--fabric", "verbs"]);
    well_formed(&told);
    assert_eq!(told.status, 2);
    for id in ["library", "modules", "devices", "memlock"] {
        assert_eq!(told.level(id), "problem", "{id}");
    }
}

#[test]
fn folders_where_no_log_belongs_are_told_apart() {
    // Of the recorded tree: no folder of this machine.
    let copy_on_write = concat!("/ho", "me/log");
    for (folder, level, status) in
        [(copy_on_write, "problem", 2), ("/mnt/share/log", "problem", 2), ("/tmp/log", "warning", 1)]
    {
        let told = Told::of_tree("none", &[folder]);
        well_formed(&told);
        assert_eq!((told.level("filesystem"), told.status), (level, status), "{folder}");
        assert_eq!(told.report["folder"], folder);
    }
}

#[test]
fn soft_roce_is_found_with_its_address() {
    let told = Told::of_tree("rxe", &["/data/log"]);
    well_formed(&told);
    assert_eq!(told.status, 0, "{}", told.text);
    let device = told.finding("device");
    assert_eq!(device["subject"], "rxe0");
    assert!(device["seen"].as_str().unwrap().starts_with("Soft-RoCE"), "{device}");
    assert_eq!(told.level("port"), "ok");
    let gids = told.finding("addresses")["values"]["gids"].as_array().unwrap();
    assert_eq!(
        (gids.len(), &gids[1]["address"], &gids[1]["type"]),
        (2, &"10.0.0.1".into(), &"RoCE v2".into())
    );
    assert!(told.finding("addresses")["means"].as_str().unwrap().starts_with("10.0.0.1 is taken"));
    assert_eq!(told.finding("mtu")["values"]["path_mtu_bytes"], 4096);
    assert_eq!(told.level("counters"), "ok");
    assert_eq!(told.finding("filesystem")["values"]["type"], "ext4");
    assert_eq!(told.finding("folios")["values"]["large"], true);
}

#[test]
fn a_connectx_is_read_down_to_its_flow_control() {
    let told = Told::of_tree("connectx", &["/srv/log/m1"]);
    well_formed(&told);
    assert_eq!(told.status, 1, "{}", told.text);
    let device = told.finding("device");
    assert_eq!(device["level"], "ok");
    assert_eq!(
        (&device["values"]["firmware"], &device["values"]["numa_node"], &device["values"]["driver"]),
        (&"22.39.1002".into(), &1.into(), &"mlx5_core".into())
    );
    assert_eq!(told.level("lost_packets"), "warning");
    assert_eq!(
        told.finding("lost_packets")["values"],
        serde_json::json!({"packet_seq_err": 118, "out_of_sequence": 121})
    );
    assert_eq!(told.finding("link_downed")["values"]["link_downed"], 2);
    assert_eq!(told.finding("congestion")["values"]["rp_cnp_handled"], 5120);
    assert_eq!(told.finding("receiver_not_ready")["level"], "note");
    let pfc = &told.finding("pfc")["values"];
    assert_eq!(pfc, &serde_json::json!({"priorities": [3], "sent": 40213, "received": 977}));
    assert_eq!(told.finding("ecn")["values"], serde_json::json!({"answered": [3], "obeyed": [3]}));
    assert_eq!(told.finding("trust")["values"]["trust"], "dscp");
    assert_eq!(
        told.finding("mtu")["values"],
        serde_json::json!({"interface_mtu_bytes": 1500, "path_mtu_bytes": 1024})
    );
    assert_eq!(told.finding("mtu")["run"], "ip link set ens1f0np0 mtu 9000");
    assert_eq!(told.level("memlock"), "warning");
    assert_eq!(told.finding("cgroup")["values"]["bytes"], 256 << 20);
    assert_eq!(told.level("numa"), "note");
    let providers = told.finding("providers")["values"]["names"].as_array().unwrap();
    assert_eq!(providers, &["mlx5", "rxe"]);

    // The same machine, asked for less and for more.
    let told = Told::of_tree("connectx", &["--fabric", "verbs"]);
    well_formed(&told);
    assert_eq!((told.level("memlock"), told.status), ("problem", 2));
    let told = Told::of_tree("connectx", &["/srv/fast"]);
    assert_eq!((told.level("mount"), told.status), ("problem", 2));
}

/// In the guest, by a binary that has verbs: the command opens the device and tries it in the folder `WINDLASS_DISK_FOLDER`.
#[test]
#[ignore = "needs a device: cargo xtask guest"]
fn a_device_is_tried() {
    let folder = std::env::var("WINDLASS_DISK_FOLDER").unwrap();
    let told = Told::of(&[&folder, "--fabric", "verbs"]);
    println!("{}", told.text);
    well_formed(&told);
    assert_eq!(told.level("open"), "ok");
    let windows = &told.finding("windows")["values"];
    assert_eq!(windows["windows"], true);
    let types = windows["types"].as_array().unwrap();
    assert!(types.iter().any(|name| name == "2A" || name == "2B"), "{windows}");
    assert!(windows["windows_max"].as_u64().unwrap() > 0, "{windows}");
    let operations = told.finding("on_demand")["values"]["operations"].as_array().unwrap();
    for operation in ["write", "read"] {
        assert!(operations.iter().any(|name| name == operation), "{operation}: {operations:?}");
    }
    assert!(told.finding("open")["seen"].as_str().unwrap().contains("traffic class 0"));
    let mode = told.finding("registration")["values"]["mode"].as_str().unwrap();
    assert!(["odp", "odp-page", "staged"].contains(&mode), "a disk's file is not pinned: {mode}");
    assert_eq!(told.level("memlock"), "ok", "the guest has no limit");
    assert_eq!(told.report["problems"], 0);
}

#[test]
fn what_is_no_folder_and_can_not_become_one_is_a_problem() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("file"), "something").unwrap();
    std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
    std::os::unix::fs::symlink("circle", at("circle")).unwrap();
    assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    let cases = [
        (at("file"), "file is no folder"),
        (at("fifo"), "fifo is no folder"),
        ("/dev/null".to_owned(), "/dev/null is no folder"),
        (at("file/below/it"), "file is no folder"),
        (at("dangling"), "is a link to what is not there"),
        (at("dangling/below"), "is a link to what is not there"),
        (at("circle"), "symbolic link"),
        (at(&"long".repeat(100)), "too long"),
    ];
    for (path, words) in cases {
        let told = Told::of(&["--fabric", "tcp", &path]);
        assert_eq!((told.status, told.level("folder")), (2, "problem"), "{path}: {}", told.text);
        assert!(told.finding("folder")["seen"].as_str().unwrap().contains(words), "{path}: {}", told.text);
    }
    // What can become one.
    std::os::unix::fs::symlink(folder.path(), at("link")).unwrap();
    for path in [at("absent"), at("link/absent")] {
        assert_eq!(Told::of(&["--fabric", "tcp", &path]).level("folder"), "note", "{path}");
    }
}

#[test]
fn a_tree_that_is_not_there_is_not_judged() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(folder.path().join("file"), "something").unwrap();
    for name in ["absent", "file"] {
        let root = folder.path().join(name);
        let built = env!("CARGO_BIN_EXE_windlass").into();
        let mut command = Command::new(std::env::var_os("WINDLASS_PROGRAM").unwrap_or(built));
        let out = command.args(["doctor", "--root"]).arg(&root).output().unwrap();
        assert_eq!(out.status.code(), Some(5), "{name}");
        assert!(out.stdout.is_empty(), "{name}");
        assert!(String::from_utf8_lossy(&out.stderr).contains(root.to_str().unwrap()), "{name}");
    }
}
