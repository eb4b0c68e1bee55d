//! `replay DIR [NAME…]`: replays recorded cases and ends with `N passed, N failed`.
//! `replay --record DIR NAME…`: writes down what our parts make of own cases.
//! `replay DIR --hold OUT NAME`: plays one and keeps its servers running, with their kubeconfigs in the folder OUT.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let mut args = std::env::args().skip(1).peekable();
    let record = args.next_if(|arg| arg == "--record").is_some();
    let Some(dir) = args.next() else {
        anyhow::bail!("usage: replay [--record] DIR [NAME…]");
    };
    let names: Vec<String> = args.collect();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("ANABRANCH_LOG").unwrap_or_else(|_| "error".into()))
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if record {
        for name in &names {
            runtime.block_on(testkit::replay::record(dir.as_ref(), name))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let [flag, out, name] = names.as_slice()
        && flag == "--hold"
    {
        runtime.block_on(testkit::replay::hold(dir.as_ref(), name, out.as_ref()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let verdicts = runtime.block_on(testkit::replay::replay(dir.as_ref(), &names, None, &mut |verdict| {
        println!("{} {}  ({:.1} s)", if verdict.differences.is_empty() { "ok    " } else { "FAILED" }, verdict.name, verdict.took.as_secs_f64());
        for difference in &verdict.differences {
            println!("         {difference}");
        }
    }))?;
    let failed = verdicts.iter().filter(|verdict| !verdict.differences.is_empty()).count();
    println!("{} passed, {failed} failed", verdicts.len() - failed);
    Ok(if failed == 0 && !verdicts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
