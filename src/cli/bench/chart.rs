//! `anabranch bench chart`: charts rendered cold, cached, and for a fleet; beside Helm's own packages when a helper is given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use chart::{Chart, Request};
use clap::Args as ClapArgs;
use serde::Serialize;
use program::exit::{print, say};

use crate::demo::table;

#[derive(Debug, ClapArgs)]
pub(crate) struct ChartBench {
    /// Charts: directories or archives
    #[arg(required = true, value_name = "CHART")]
    pub(crate) charts: Vec<PathBuf>,
    /// Renders for each figure
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) rounds: usize,
    /// Clusters that one chart is rendered for, over all cores; 0 leaves it out
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub(crate) clusters: usize,
    /// Program that measures Helm's packages in process on the same charts (tab separated; its columns 6 and 9 are CPU ms)
    #[arg(long, value_name = "BIN")]
    pub(crate) helmbench: Option<PathBuf>,
    /// One JSON object a row
    #[arg(long)]
    pub(crate) json: bool,
}

/// CPU milliseconds of one chart.
#[derive(Debug, Default, Serialize)]
struct Row {
    chart: String,
    templates: usize,
    bytes: usize,
    /// Files in memory to documents, nothing kept from before.
    cold_ms: f64,
    /// The chart loaded and its templates prepared.
    cached_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    helm_load_render_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    helm_render_ms: Option<f64>,
    /// How many times as long Helm takes, cold against cold.
    #[serde(skip_serializing_if = "Option::is_none")]
    cold_ratio: Option<f64>,
    /// How many times as long Helm takes with the chart loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_ratio: Option<f64>,
    /// Wall seconds for the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet_seconds: Option<f64>,
    /// Most memory of this process so far, MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_mib: Option<f64>,
}

/// CPU time of this thread in ms, or the time of day where the system does not tell.
fn cpu_ms(begun: Instant) -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|text| text.split(' ').next().and_then(|n| n.parse::<f64>().ok()));
    nanos.map_or_else(|| begun.elapsed().as_secs_f64() * 1e3, |n| n / 1e6)
}

/// Median CPU time of a few runs after one that does not count.
fn measure(rounds: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let begun = Instant::now();
    let mut all = Vec::with_capacity(rounds.max(1));
    for _ in 0..rounds.max(1) {
        let from = cpu_ms(begun);
        run()?;
        all.push(cpu_ms(begun) - from);
    }
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

/// A chart as its bytes.
enum Source {
    Files(BTreeMap<String, Vec<u8>>),
    Archive(Vec<u8>),
}

impl Source {
    fn read(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Ok(Self::Archive(std::fs::read(path)?));
        }
        let mut files = BTreeMap::new();
        crate::template::walk(path, path, &mut files).map_err(anyhow::Error::msg)?;
        Ok(Self::Files(files))
    }

    fn load(&self) -> Result<Chart> {
        match self {
            Self::Files(files) => Ok(chart::load(files.clone())?),
            Self::Archive(bytes) => Ok(chart::load_archive(bytes)?),
        }
    }
}

fn request(number: usize) -> Request {
    Request { name: "rel".to_owned(), namespace: format!("ns-{number}"), seed: u64::try_from(number).unwrap_or_default(), kube_version: chart::parse_kube("1.33.0").ok(), ..Request::default() }
}

fn templates(chart: &Chart) -> usize {
    chart.templates.len() + chart.dependencies.iter().map(templates).sum::<usize>()
}

fn row(path: &Path, args: &ChartBench) -> Result<Row> {
    let source = Source::read(path)?;
    let loaded = source.load()?;
    let out = chart::template(&loaded, &request(0))?;
    let mut row = Row { chart: loaded.name().to_owned(), templates: templates(&loaded), bytes: out.text.len(), ..Row::default() };
    row.cold_ms = measure(args.rounds, || Ok(drop(chart::template(&source.load()?, &request(0))?)))?;
    row.cached_ms = measure(args.rounds, || Ok(drop(chart::template(&loaded, &request(0))?)))?;
    if args.clusters > 0 {
        row.fleet_seconds = Some(fleet(&loaded, args.clusters)?);
    }
    row.peak_mib = super::status_kib("self", "VmHWM").map(super::mib);
    Ok(row)
}

/// Renders for many clusters over all cores; wall seconds.
fn fleet(chart: &Chart, clusters: usize) -> Result<f64> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if number >= clusters {
                    return Ok(());
                }
                chart::template(chart, &request(number))?;
            }
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a render stopped")))
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

/// CPU ms of Helm by path of the chart: load and render, render.
fn helm(bin: &Path, path: &Path, rounds: usize) -> Result<(f64, f64)> {
    let out = Command::new(bin).args(["-helm", "", "-kube", "1.33.0", "-k", &rounds.max(1).to_string()]).arg(path).output().with_context(|| format!("run {}", bin.display()))?;
    if !out.status.success() {
        bail!("{} failed: {}", bin.display(), String::from_utf8_lossy(&out.stderr).trim());
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let line = text.lines().last().unwrap_or_default();
    let figure = |column: usize| line.split('\t').nth(column).and_then(|f| f.trim().parse().ok());
    match (figure(5), figure(8)) {
        (Some(load), Some(render)) => Ok((load, render)),
        _ => bail!("{} printed {line:?}", bin.display()),
    }
}

/// Measures and prints.
pub(super) fn run(args: &ChartBench) -> Result<ExitCode> {
    let head = ["CHART", "TEMPLATES", "BYTES", "COLD MS", "CACHED MS", "HELM COLD", "HELM CACHED", "COLD X", "CACHED X", "FLEET S", "PEAK MIB"];
    let mut rows = vec![head.map(str::to_owned)];
    let mut failed = false;
    for path in &args.charts {
        let mut row = match row(path, args) {
            Ok(row) => row,
            Err(error) => {
                say(&format!("{}: {error:#}", path.display()));
                failed = true;
                continue;
            }
        };
        if let Some(bin) = &args.helmbench {
            let (load, render) = helm(bin, path, args.rounds)?;
            (row.helm_load_render_ms, row.helm_render_ms) = (Some(load), Some(render));
            (row.cold_ratio, row.cached_ratio) = (Some(load / row.cold_ms), Some(render / row.cached_ms));
        }
        if args.json {
            print(&format!("{}\n", serde_json::to_string(&row)?));
            continue;
        }
        let shown = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |f| format!("{f:.1}"));
        rows.push([
            row.chart.clone(),
            row.templates.to_string(),
            row.bytes.to_string(),
            format!("{:.1}", row.cold_ms),
            format!("{:.1}", row.cached_ms),
            shown(row.helm_load_render_ms),
            shown(row.helm_render_ms),
            shown(row.cold_ratio),
            shown(row.cached_ratio),
            shown(row.fleet_seconds),
            shown(row.peak_mib),
        ]);
    }
    if !args.json {
        print(&table(&rows));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
