#!/bin/sh
# Renders the charts with default values into the kustomizations, with our own chart engine.
set -eu
cd "$(dirname "$0")/.."
anabranch() { cargo run -q --bin anabranch -- "$@"; }
for file in schemas/crds/*.yaml; do echo ---; cat "$file"; done > deploy/parent/crds.yaml
anabranch template anabranch deploy/chart/anabranch -n clusternet-system > deploy/parent/install.yaml
anabranch template anabranch-agent deploy/chart/anabranch-agent -n clusternet-system > deploy/agent/install.yaml
