//! The repository's own files as text, and Rust's code told from its comments and literals.

use std::path::Path;

/// A text file of the repository.
pub(crate) struct Source {
    /// Its path from the top of the workspace, with `/`.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
}

/// Folders that hold what tools make.
const MADE: &[&str] = &[".git", "target", "artifacts", "coverage", "corpus", "node_modules"];

/// Every text file under `root`, in order of path; files that are not UTF-8 (golden bytes, seeds) are left out.
pub(crate) fn all(root: &Path) -> std::io::Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            if MADE.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file()
                && let Ok(text) = String::from_utf8(std::fs::read(&path)?)
            {
                let relative = path.strip_prefix(root).expect("found under it");
                found.push(Source { path: relative.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl Source {
    /// Whether it is Rust.
    pub(crate) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }
}

/// The text with comments and the insides of string and character literals blanked; lines stay where they are.
pub(crate) fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let blanked = literal_or_comment_bytes(rest, before);
        if blanked == 0 {
            code.push(first);
            before = first;
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(rest[..blanked].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            before = ' ';
            rest = &rest[blanked..];
        }
    }
    code
}

/// The length of the comment or literal that `rest` starts with, 0 where it starts with code.
fn literal_or_comment_bytes(rest: &str, before: char) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_bytes(rest);
    }
    if rest.starts_with('"') {
        return string_bytes(rest);
    }
    if rest.starts_with('\'') {
        return character_bytes(rest);
    }
    let word_goes_on = before.is_alphanumeric() || before == '_';
    if word_goes_on { 0 } else { raw_string_bytes(rest) }
}

fn block_comment_bytes(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        if tail.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_bytes(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character literal, not a lifetime.
fn character_bytes(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    let Some((_, first)) = chars.next() else { return 0 };
    if first == '\\' {
        return rest[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(0, |(at, _)| 2 + at + 1);
    }
    match chars.next() {
        Some((at, '\'')) => at + 1,
        _ => 0,
    }
}

/// `r"…"`, `r#"…"#`, `br"…"` and the like; 0 for a raw identifier or any other word.
fn raw_string_bytes(rest: &str) -> usize {
    let word = ["br", "cr", "r"].into_iter().find(|word| rest.starts_with(*word));
    let Some(word) = word else { return 0 };
    let hashes = rest[word.len()..].bytes().take_while(|byte| *byte == b'#').count();
    let open = word.len() + hashes;
    if rest.as_bytes().get(open) != Some(&b'"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    rest[open + 1..].find(&close).map_or(rest.len(), |at| open + 1 + at + close.len())
}

/// Whether `word` stands in `line` with no letter, digit or underscore at either side.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(part_of_word)
            && !line[at + word.len()..].chars().next().is_some_and(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays() {
        let text = "let a = \"x \\\" unsafe\"; // unsafe\n/* unsafe /* unsafe */ \n unsafe */ b('\\'', '\"', 'x');\n";
        let code = code_of(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert!(code.contains("let a = ") && code.contains(" b("));
        assert_eq!(code.lines().count(), text.lines().count());
    }

    #[test]
    fn raw_strings_and_lifetimes_are_told_apart() {
        let code = code_of(
            "fn f<'a>(x: &'a str) { g(r#\"unsafe \" \"#, br\"unsafe\", var\"\", r#type); unsafe {} }",
        );
        assert_eq!(code.matches("unsafe").count(), 1, "{code}");
        assert!(code.contains("<'a>") && code.contains("&'a str") && code.contains("r#type"));
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe { x }", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(has_word("(unsafe)", "unsafe"));
    }
}
