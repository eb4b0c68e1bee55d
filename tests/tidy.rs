//! Holds the house together: the import table, ring purity, file size, first lines, declared tests, stale generated files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn files(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, extension, found);
            }
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

fn rust_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in ["src", "tests"] {
        files(&Path::new(ROOT).join(dir), "rs", &mut found);
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(ROOT).unwrap().display().to_string()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Room -> ring and the rooms it may import.
fn table() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = read(&Path::new(ROOT).join("src/README.md"));
    let mut rooms = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells.len() == 4 && cells[0] != "room" {
            let imports = cells[3].split_whitespace().filter(|word| *word != "-").map(str::to_owned).collect();
            rooms.insert(cells[0].to_owned(), (cells[1].to_owned(), imports));
        }
    }
    rooms
}

/// The rooms that a room's manifest names outside its dev-dependencies.
fn imports(room: &str) -> BTreeSet<String> {
    let text = read(&Path::new(ROOT).join("src").join(room).join("Cargo.toml"));
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]"
            && let Some((name, _)) = line.split_once('=')
        {
            let name = name.trim().trim_end_matches(".workspace").to_owned();
            if Path::new(ROOT).join("src").join(&name).join("Cargo.toml").exists() {
                found.insert(name);
            }
        }
    }
    found
}

#[test]
fn imports_are_those_of_the_table() {
    let table = table();
    let mut faults = Vec::new();
    for entry in std::fs::read_dir(Path::new(ROOT).join("src")).unwrap() {
        let entry = entry.unwrap();
        if !entry.path().join("Cargo.toml").exists() {
            continue;
        }
        let room = entry.file_name().to_string_lossy().into_owned();
        let Some((_, allowed)) = table.get(&room) else {
            faults.push(format!("room {room} is not in the table of src/README.md"));
            continue;
        };
        for import in imports(&room).iter().filter(|import| !allowed.contains(*import) && !allowed.contains("any")) {
            faults.push(format!("{room} imports {import}, which the table does not allow"));
        }
    }
    for room in table.keys().filter(|room| !Path::new(ROOT).join("src").join(room.as_str()).join("Cargo.toml").exists()) {
        faults.push(format!("the table names room {room}, which does not exist"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_inner_rings_are_pure() {
    const BANNED: [&str; 13] = [
        "tokio::", "std::fs", "std::env::", "TcpStream", "UdpSocket", "std::process", "std::thread", "SystemTime::now", "Instant::now", "Timestamp::now",
        "Zoned::now", "HashMap", "HashSet",
    ];
    let mut faults = Vec::new();
    for (room, _) in table().iter().filter(|(_, (ring, _))| ring.starts_with('0') || ring.starts_with('1')) {
        let mut found = Vec::new();
        files(&Path::new(ROOT).join("src").join(room), "rs", &mut found);
        for path in found {
            let name = shown(&path);
            // Tests, examples and generators run outside.
            if name.contains("/examples/") || name.contains("/tests") || name.contains("test") || name.contains("/bin/") || name.contains("/benches/") {
                continue;
            }
            let text = read(&path);
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in code.lines().enumerate() {
                let line = line.split("//").next().unwrap_or_default();
                for word in BANNED.iter().filter(|word| line.contains(**word)) {
                    faults.push(format!("{name}:{}: {word} in an inner ring", number + 1));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_file_says_its_duty_and_stays_small() {
    let mut faults = Vec::new();
    for path in rust_files() {
        let text = read(&path);
        if !text.starts_with("//!") {
            faults.push(format!("{}: the first line is no `//!` line", shown(&path)));
        }
        let lines = text.lines().count();
        if lines > 800 {
            faults.push(format!("{}: {lines} lines, more than 800", shown(&path)));
        }
        for banned in ["#[ignore", "todo!(", "unimplemented!(", "dbg!("] {
            if !path.ends_with("tidy.rs") && text.contains(banned) {
                faults.push(format!("{}: {banned}", shown(&path)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_test_file_is_declared() {
    let all = read(&Path::new(ROOT).join("tests/all.rs"));
    for entry in std::fs::read_dir(Path::new(ROOT).join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_module = path.extension().is_some_and(|e| e == "rs") || path.join("mod.rs").exists();
        if is_module && name != "all" {
            assert!(all.contains(&format!("mod {name};")), "tests/{name} is not declared in tests/all.rs");
        }
    }
}

/// A `.rs` file inside a room that no `mod` line reaches is never compiled.
#[test]
fn every_source_file_is_declared() {
    let mut faults = Vec::new();
    for path in rust_files() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let dir = path.parent().unwrap();
        let folder = dir.file_name().unwrap().to_string_lossy().into_owned();
        if ["lib", "main", "mod", "all", "kubectl"].contains(&name.as_str()) || ["bin", "examples", "benches", "tests"].contains(&folder.as_str()) {
            continue;
        }
        let parents = [dir.join("mod.rs"), dir.join("lib.rs"), dir.with_extension("rs")];
        let declared = parents.iter().filter(|parent| parent.exists()).any(|parent| {
            let text = read(parent);
            text.contains(&format!("mod {name};")) || text.contains(&format!("/{name}.rs\"")) || text.contains(&format!("\"{name}.rs\""))
        });
        let siblings = std::fs::read_dir(dir).unwrap().any(|entry| {
            let sibling = entry.unwrap().path();
            sibling.extension().is_some_and(|e| e == "rs") && sibling != path && read(&sibling).contains(&format!("{name}.rs\""))
        });
        if !declared && !siblings {
            faults.push(shown(&path));
        }
    }
    assert!(faults.is_empty(), "files that nothing compiles:\n{}", faults.join("\n"));
}
