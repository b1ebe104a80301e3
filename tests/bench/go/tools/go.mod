// Programs that check what the project ships. No Go code of ours: only what to build.
module ferrite.metal3.io/bench/tools

go 1.26.0

tool (
	github.com/prometheus/prometheus/cmd/promtool
	helm.sh/helm/v4/cmd/helm
)
