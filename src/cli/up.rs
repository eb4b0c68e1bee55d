//! `anabranch up`: the embedded parent and all parts for real use, from a configuration file.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use engine::{CancellationToken, Tasks};
use serde_json::json;
use program::exit::{print, say};
use program::part::{finish, open_door};

use crate::args::UpArgs;
use crate::embedded::{self, Keep, PartOptions, Role, Server};

/// Runs everything until told to stop.
pub(crate) async fn run(args: UpArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    let config = crate::config::read(&args.config)?;
    if args.check {
        print(&format!("{} is well\n", args.config.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(&shutdown);
    std::fs::create_dir_all(&config.dir).with_context(|| format!("make the folder {}", config.dir.display()))?;
    let dir = config.dir.canonicalize()?;
    let git = git::Git::new(git::Options { directory: dir.join("git"), local_threads: 4, network_threads: 8 });
    let parent = embedded::start(&Keep::Folder(dir.join("parent")), &Role::Parent, Some(config.listen), &tasks).await?;
    let kubeconfig = parent.kubeconfig("anabranch").context("the parent listens")?;
    embedded::write_private(&dir.join("kubeconfig"), &kubeconfig)?;
    embedded::prepare_parent(&parent.admin()).await?;
    let token = embedded::bootstrap_token(&parent.admin()).await?;
    embedded::write_private(&dir.join("bootstrap-token"), token.reveal())?;
    let mut options = PartOptions::usual(git.clone());
    options.controllers.git = Some(git);
    let metrics = options.controllers.metrics.clone();
    embedded::start_parts(&parent, options, &tasks);
    tell(&parent, &config).await?;
    let door = admin::Door::default();
    let ready = parent.api.clone();
    door.check("parent", move || if ready.ready() { Ok(()) } else { Err("its store takes no writes".to_owned()) });
    door.metrics(move || metrics.render());
    open_door("up", door, config.admin, filter, &tasks).await?;
    say(&format!("parent at {}; kubeconfig {}", parent.url, dir.join("kubeconfig").display()));
    say(&format!(
        "let a cluster join:\n  anabranch agent --parent {} --token \"$(cat {})\" --parent-ca {} --kubeconfig CHILD --name NAME",
        parent.url,
        dir.join("bootstrap-token").display(),
        dir.join("parent/pki/ca.crt").display(),
    ));
    let token = tasks.token().clone();
    let wait = async move {
        token.cancelled().await;
        Ok::<(), std::convert::Infallible>(())
    };
    finish(wait, &shutdown, &tasks).await
}

async fn tell(parent: &Server, config: &crate::config::Config) -> Result<()> {
    let dynamic = cluster::Dynamic::new(parent.admin());
    let how = cluster::dynamic::ApplyAs { manager: "anabranch-up", force: true, dry_run: false };
    let resource = |kind: &str, plural: &str| cluster::Resource {
        group: "gitops.anabranch.io".to_owned(),
        version: "v1alpha1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced: true,
    };
    let object = |kind: &str, spec: serde_json::Value| {
        json!({
            "apiVersion": "gitops.anabranch.io/v1alpha1", "kind": kind,
            "metadata": {"name": "main", "namespace": api::known::namespace::SYSTEM}, "spec": spec,
        })
    };
    let mut target = json!({"url": config.delivery.url});
    if let Some(branch) = &config.delivery.branch {
        target["branch"] = json!(branch);
    }
    if let Some(secret) = &config.delivery.secret {
        target["secretRef"] = json!({"name": secret});
    }
    let mut source = json!({"url": config.source.url, "ref": {"branch": config.source.branch}, "paths": config.source.paths, "prune": true});
    if let Some(interval) = &config.source.interval {
        source["interval"] = json!(interval);
    }
    if let Some(secret) = &config.source.secret {
        source["secretRef"] = json!({"name": secret});
    }
    dynamic.apply(&resource("GitTarget", "gittargets"), &object("GitTarget", target), how).await.context("apply the GitTarget main")?;
    dynamic.apply(&resource("GitSource", "gitsources"), &object("GitSource", source), how).await.context("apply the GitSource main")?;
    Ok(())
}
