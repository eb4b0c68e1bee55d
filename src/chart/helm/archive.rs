//! Chart archives: gzip and tar in memory, with Helm's checks of paths and sizes.

use std::io::Read;

/// Most bytes an archive may hold unpacked.
pub const MAX_SIZE: u64 = 100 << 20;

/// Files of an archive in its order, paths relative to the chart.
pub fn unpack(data: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
    if data.len() < 3 || data[..2] != [0x1f, 0x8b] {
        return Err("gzip: invalid header".into());
    }
    let mut tar = tar::Archive::new(flate2::read::MultiGzDecoder::new(data));
    let mut out = Vec::new();
    let mut left = MAX_SIZE;
    let too_large = || format!("decompressed chart is larger than the maximum size {MAX_SIZE}");
    for entry in tar.entries().map_err(|e| e.to_string())? {
        let mut e = entry.map_err(|e| e.to_string())?;
        let kind = e.header().entry_type();
        if kind.is_dir() || kind.is_pax_global_extensions() || kind.is_pax_local_extensions() {
            continue;
        }
        let full = crate::text::lossy(&e.path_bytes()).into_owned();
        if full.ends_with('/') {
            continue;
        }
        let sep = if full.contains('\\') { '\\' } else { '/' };
        let first = full.split(sep).next().unwrap_or("").to_string();
        let rest = full.split_once(sep).map_or("", |(_, r)| r).replace(sep, "/");
        if rest.starts_with('/') {
            return Err("chart illegally contains absolute paths".into());
        }
        let name = crate::text::lossy(&crate::func::path_clean(rest.as_bytes())).into_owned();
        if name == "." {
            return Err(format!("chart illegally contains content outside the base directory: {}", crate::text::quote::quote(full.as_bytes())));
        }
        if name.starts_with("..") {
            return Err("chart illegally references parent directory".into());
        }
        let b = name.as_bytes();
        if b.len() > 2 && b[0].is_ascii_alphabetic() && b[1] == b':' && b[2] == b'/' {
            return Err("chart contains illegally named files".into());
        }
        if first == "Chart.yaml" {
            return Err("chart yaml not in base directory".into());
        }
        if e.size() > left {
            return Err(too_large());
        }
        let mut body = Vec::new();
        e.by_ref().take(left).read_to_end(&mut body).map_err(|e| e.to_string())?;
        left -= body.len() as u64;
        if left == 0 {
            return Err(too_large());
        }
        out.push((name, super::load::without_bom(body)));
    }
    if out.is_empty() {
        return Err("no files in chart archive".into());
    }
    Ok(out)
}
