//! Local repositories without a detour: references are read and set through libgit2, unless hooks or settings ask for `git` itself.

use std::collections::BTreeMap;
use std::path::Path;

use git2::Repository;

use crate::error::TransportError;
use crate::fetch::Advert;
use crate::id::ObjectId;
use crate::push::{RefOutcome, RefUpdate, classify};

/// Makes an empty bare repository with the branch `main`.
pub(crate) fn init(path: &Path) -> Result<(), TransportError> {
    if path.join("HEAD").exists() {
        return Ok(());
    }
    let mut options = git2::RepositoryInitOptions::new();
    options.bare(true).mkpath(true).external_template(false).initial_head("main");
    Repository::init_opts(path, &options)?;
    Ok(())
}

/// The references whose names begin with one of the prefixes.
pub(crate) fn refs(repository: &Repository, prefixes: &[String]) -> Result<Advert, TransportError> {
    let mut out = Advert::default();
    for prefix in prefixes {
        if prefix == "HEAD" {
            let Ok(head) = repository.find_reference("HEAD") else { continue };
            out.head = head.symbolic_target().ok().flatten().map(str::to_owned);
            if let Some(id) = head.resolve().ok().and_then(|r| r.target()) {
                out.refs.insert("HEAD".to_owned(), ObjectId::from_oid(id));
            }
            continue;
        }
        // One exact name is one file; only a true prefix costs a walk.
        if !prefix.ends_with('/') && take(repository, repository.find_reference(prefix).ok(), &mut out) {
            continue;
        }
        let glob = format!("{}*", prefix.replace(['*', '?', '['], ""));
        for reference in repository.references_glob(&glob)? {
            take(repository, reference.ok(), &mut out);
        }
    }
    Ok(out)
}

fn take(_repository: &Repository, reference: Option<git2::Reference<'_>>, out: &mut Advert) -> bool {
    let Some(reference) = reference else { return false };
    let Some(name) = reference.name().ok().map(str::to_owned) else { return false };
    let Some(id) = reference.resolve().ok().and_then(|r| r.target()) else { return false };
    if name.starts_with("refs/tags/")
        && let Ok(commit) = reference.peel_to_commit()
        && commit.id() != id
    {
        out.peeled.insert(name.clone(), ObjectId::from_oid(commit.id()));
    }
    out.refs.insert(name, ObjectId::from_oid(id));
    true
}

/// Sets references directly; `None` when the repository has hooks or settings that only `git` honours.
pub(crate) fn push(repository: &Repository, updates: &[RefUpdate]) -> Result<Option<BTreeMap<String, RefOutcome>>, TransportError> {
    if needs_git(repository) {
        return Ok(None);
    }
    let mut out = BTreeMap::new();
    for update in updates {
        out.insert(update.name.clone(), set(repository, update));
    }
    Ok(Some(out))
}

fn set(repository: &Repository, update: &RefUpdate) -> RefOutcome {
    let current = || repository.find_reference(&update.name).ok().and_then(|r| r.target()).map(ObjectId::from_oid);
    let done = if update.new.is_zero() {
        match current() {
            None => Ok(()),
            Some(found) if found != update.old => return RefOutcome::Lost { found: Some(found) },
            Some(_) => repository.find_reference(&update.name).and_then(|mut r| r.delete()),
        }
    } else if update.old.is_zero() {
        repository.reference(&update.name, update.new.oid(), false, "anabranch").map(|_| ())
    } else {
        repository.reference_matching(&update.name, update.new.oid(), true, update.old.oid(), "anabranch").map(|_| ())
    };
    match done {
        Ok(()) => RefOutcome::Done,
        Err(error) => {
            let found = current();
            if found == Some(update.new) || (found.is_none() && update.new.is_zero()) {
                return RefOutcome::Done;
            }
            if found.unwrap_or(ObjectId::ZERO) != update.old {
                return RefOutcome::Lost { found };
            }
            match error.code() {
                git2::ErrorCode::Locked | git2::ErrorCode::Modified => RefOutcome::Lost { found },
                // A loose reference in the way of a directory, or the other way round.
                git2::ErrorCode::Directory | git2::ErrorCode::Exists | git2::ErrorCode::InvalidSpec => {
                    RefOutcome::Refused { why: crate::push::Refusal::Name, text: error.message().to_owned() }
                }
                _ if in_the_way(repository, &update.name) => RefOutcome::Refused { why: crate::push::Refusal::Name, text: "another reference is in its place".to_owned() },
                _ => classify(error.message(), ""),
            }
        }
    }
}

/// Whether a reference stands where this name needs a directory.
fn in_the_way(repository: &Repository, name: &str) -> bool {
    let above = name.match_indices('/').filter(|(at, _)| *at > "refs/heads".len()).any(|(at, _)| repository.find_reference(&name[..at]).is_ok());
    above || repository.references_glob(&format!("{name}/*")).is_ok_and(|mut below| below.next().is_some())
}

/// Whether somebody set the repository up to check or to notice pushes.
fn needs_git(repository: &Repository) -> bool {
    let Ok(config) = repository.config().and_then(|mut c| c.snapshot()) else { return true };
    let set = |name: &str| config.get_str(name).is_ok();
    if !repository.is_bare()
        || ["receive.denydeletes", "receive.denynonfastforwards", "receive.fsckobjects", "transfer.fsckobjects", "receive.maxinputsize", "core.alternaterefscommand"]
            .iter()
            .any(|n| set(n))
    {
        return true;
    }
    let hooks = match config.get_path("core.hookspath") {
        Ok(path) => path,
        Err(_) => repository.path().join("hooks"),
    };
    ["pre-receive", "update", "post-receive", "post-update", "reference-transaction", "proc-receive", "push-to-checkout"].iter().any(|n| executable(&hooks.join(n)))
}

fn executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
