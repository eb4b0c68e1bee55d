//! Discovery above the groups, and the authority's leaves.

use super::*;

#[test]
fn documents_above_the_groups() {
    let plain = http::HeaderMap::new();
    let code = |path: &str| discovery(&Method::GET, path, &plain).map(|response| response.status());
    assert_eq!(code("/apis"), Some(StatusCode::OK));
    assert_eq!(code("/apis/shadow"), Some(StatusCode::OK));
    assert_eq!(code("/apis/shadow/"), Some(StatusCode::OK));
    assert_eq!(code("/apis/others"), None);
    assert_eq!(code("/openapi/v2"), Some(StatusCode::OK));
    assert_eq!(code("/openapi/v3/apis"), None);
    let mut aggregated = http::HeaderMap::new();
    aggregated.insert("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".parse().expect("a header"));
    assert_eq!(discovery(&Method::GET, "/apis", &aggregated).map(|r| r.status()), Some(StatusCode::NOT_ACCEPTABLE));
}
