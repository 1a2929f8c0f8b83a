//! Writes the seeds of every target: `cargo run --manifest-path fuzz/Cargo.toml --bin seeds`.
#![forbid(unsafe_code)]

fn main() -> std::io::Result<()> {
    for (path, bytes) in windlass_fuzz::seeds::all() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::create_dir_all(path.parent().expect("seeds/TARGET"))?;
        std::fs::write(&path, bytes)?;
        println!("{}", path.display());
    }
    Ok(())
}
