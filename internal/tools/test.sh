#!/usr/bin/env bash
# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of every module and of the Python package:
#
#	internal/tools/test.sh [-module DIR] [-integration] [FLAGS OF GO TEST]
#
# With -integration it runs what needs servers of others (Jaeger, Prometheus, Kafka, Chromium) or large libraries of
# others, and what takes longest, which it leaves out otherwise. With -race it leaves out packages whose tests start no
# goroutine. It needs bin/gotestsum, which make builds. The output ends with the reasons of skipped tests and the
# counts; the exit status is 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
gotestsum=$PWD/bin/gotestsum
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
module= integration= race= runs=0 failures=0
[ "${1-}" = -module ] && { module=${2#./}; shift 2; }
[ "${1-}" = -integration ] && { integration=1; shift; }
flags=("$@")
[[ " $* " == *" -race "* ]] && race=1

# Tests run without go vet, which make vet and make lint run. The compiler and the linker collect garbage for a seventh
# of their time, on machines with memory to spare.
gotest() { # DIR ARGUMENTS…
	local dir=$1
	shift
	echo "=== $dir"
	runs=$((runs + 1))
	(
		cd "$dir" || exit
		grep -qx "	./$dir" "$OLDPWD/go.work" || [ "$dir" = . ] || export GOWORK=off
		"$gotestsum" --format pkgname-and-test-fails --format-icons text --format-hide-empty-pkg \
			--hide-summary skipped,output --jsonfile "$log/$runs.json" -- \
			-vet=off -timeout 25m -toolexec "$(command -v env) GOGC=400" ${flags[@]+"${flags[@]}"} "$@"
	) || failures=$((failures + 1))
}

# Packages of the workspace, or of one of its modules, without those that mdatagen generates. Those that determine how
# long a run takes come first: go test starts what it is given first as early as it can.
packages() { # DIR…
	local long='/cmd/otelcol-gpu$|otelgpu/test$|/receiver/kinetoreceiver$|/dcgmsource$|/internal/clockmap$'
	local dir all
	all=$(for dir; do (cd "$dir" && go list ./...) || exit; done) || return
	all=$(grep -vE '/internal/metadata(test)?$' <<<"$all")
	[ -z "$race" ] || all=$(grep -Fxf <(concurrent "$@") <<<"$all")
	grep -E "$long" <<<"$all"
	grep -vE "$long" <<<"$all"
}

# Packages in whose tests the race detector can find something: they start goroutines or use unsafe pointers, or import
# a package that may. Of the standard library and of others, only a few do neither.
concurrent() { # DIR…
	local calls='(^[[:space:]]*|[{;] )go [a-zA-Z_(]|\.(AfterFunc|Go|Parallel|RunParallel|Pull2?)\('
	local dir
	for dir; do
		(cd "$dir" && go list -f '{{$p := .}}package {{.ImportPath}}
{{range .Imports}}import {{.}}
{{end}}{{range .GoFiles}}file {{$p.Dir}}/{{.}}
{{end}}{{range .CgoFiles}}file {{$p.Dir}}/{{.}}
{{end}}test {{.ImportPath}}
{{range .TestImports}}import {{.}}
{{end}}{{range .XTestImports}}import {{.}}
{{end}}{{range .TestGoFiles}}file {{$p.Dir}}/{{.}}
{{end}}{{range .XTestGoFiles}}file {{$p.Dir}}/{{.}}
{{end}}' ./...)
	done >"$log/imports"
	grep '^file ' "$log/imports" | cut -d' ' -f2- | xargs grep -lE -- "$calls" >"$log/starting"
	awk -v starting="$log/starting" '
		function alone(p) { # packages of others that call nothing in another goroutine
			return p !~ /^(C|unsafe|plugin|net|os\/signal)(\/|$)/ && (p !~ /^[^\/]*\./ ||
				p ~ /^(github.com\/stretchr\/testify|go.opentelemetry.io\/otel\/attribute|go.uber.org\/goleak|go.yaml.in\/yaml\/v3)(\/|$)/)
		}
		BEGIN { while ((getline f < starting) > 0) starts[f] = 1 }
		$1 == "package" { unit = $2 }
		$1 == "test" { unit = $2 " test"; tests[$2]; needs[unit] = " " $2 }
		$1 == "import" && $2 ~ /^github.com\/otelgpu\// { needs[unit] = needs[unit] " " $2 }
		$1 == "import" && $2 !~ /^github.com\/otelgpu\// && !alone($2) || $1 == "file" && starts[$2] { found[unit] = 1 }
		END {
			do {
				changed = 0
				for (u in needs) if (!found[u]) {
					n = split(needs[u], list, " ")
					for (i = 1; i <= n; i++) if (found[list[i]]) { found[u] = changed = 1; break }
				}
			} while (changed)
			for (p in tests) if (found[p " test"]) print p
		}' "$log/imports"
}

# Tests wait for servers and clocks, so there are more programs than cores, but not under the race detector.
workspace() { # DIR…
	local list
	mapfile -t list < <(packages "$@")
	[ ${#list[@]} -gt 0 ] || { echo "cannot list the packages of $*"; failures=$((failures + 1)); return; }
	[ -n "$race" ] || set -- -p $(($(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 2))
	[ -z "$race" ] || set --
	gotest . "$@" "${list[@]}"
}

python() {
	local python=${OTELGPU_PYTHON-} missing
	[ -n "$python" ] || { python=$PWD/python/.venv/bin/python; [ -x "$python" ] || python=python3; }
	echo "=== python"
	if ! missing=$("$python" -c 'import pytest, opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http' 2>&1); then
		echo "skipped: $(tail -n1 <<<"$missing") (pip install './python[test]' into python/.venv)"
		echo "0 passed, 1 skipped in" >"$log/pytest"
		return
	fi
	(cd python && PYTHONPATH=src PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -q -rs -p no:cacheprovider) |
		tee "$log/pytest" | grep -vE '^[.s ]+\[ *[0-9]+%\]$' || failures=$((failures + 1))
}

is() { [ -z "$module" ] || [ "$module" = "$1" ]; }

mapfile -t modules < <(sed -n 's,^	\(\.[^ ]*\)$,\1,p' go.work | sed 's,^\./,,')
# Compiling these takes as long as the tests of all other modules.
others=(benchmarks internal/tools/snapshot test/browser test/kubernetes test/prometheus)
begin=$SECONDS
if [ -n "$integration" ]; then
	export OTELGPU_INTEGRATION=1
	if is .; then
		# They wait for servers that are built, for scrapes and for settle delays.
		gotest . -parallel 8 -run '^TestIntegration' ./test/...
		gotest . ./.../internal/metadata ./.../internal/metadatatest
		gotest . -tags sqlite -run \
			'^TestCausesAndLosses|^TestVariants|^TestNsightTwins|^TestTruncated|^TestSimulatedJobsWithoutKineto' \
			./receiver/kinetoreceiver
		gotest . -tags sqlite ./internal/sqlitefile ./internal/heldoutjobs ./internal/freshjobs ./receiver/nsysreceiver
	fi
	is internal/tools && gotest internal/tools -run '^TestIntegration' ./...
	is gpuspan && gotest gpuspan ./internal/clockmap
	is gpuspan && gotest gpuspan -run '^TestIntegration' ./cuda ./internal/dl
elif [ -n "$module" ]; then
	[[ " ${modules[*]} " != *" $module "* ]] || workspace "$module"
	[ "$module" != internal/tools ] || gotest internal/tools ./...
else
	gotest internal/tools ./...
	workspace "${modules[@]}"
fi
for dir in "${others[@]}"; do
	# The tests of manifests read files outside their module, whose changes Go's cache of results does not notice.
	if is "$dir" && [ -n "$integration$module" ]; then gotest "$dir" -count=1 ./...; fi
done
[ -n "$integration$race" ] || ! is python || python

cat "$log"/*.json 2>/dev/null | awk '
	function field(name,  v) { return match($0, "\"" name "\":\"[^\"]*\"") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5) : "" }
	{ test = field("Test"); if (test == "") next; key = field("Package") " " test; action = field("Action") }
	action == "output" && match($0, /\.go:[0-9]+: .*\\n"/) { reason[key] = substr($0, RSTART, RLENGTH - 3); sub(/^\.go:[0-9]+: /, "", reason[key]) }
	action == "pass" { passed++ }
	action == "fail" { failed++ }
	action == "skip" { skipped++; why[key in reason ? reason[key] : "no reason given"]++ }
	END {
		for (w in why) printf "%d\t%s\n", why[w], w > "'"$log"'/reasons"
		printf "%d %d %d\n", passed, failed, skipped > "'"$log"'/counts"
	}'
[ ! -s "$log/reasons" ] || echo "skipped: $(sort -k1,1nr -k2 "$log/reasons" | awk -F'\t' '{ printf "%s%s × %s", (NR > 1) ? "; " : "", $1, $2 }')"
read -r passed failed skipped < <(cat "$log/counts" 2>/dev/null || echo 0 0 0)
if [ -f "$log/pytest" ]; then
	count() { tail -n1 "$log/pytest" | grep -oE "[0-9]+ $1" | awk '{ n += $1 } END { print n + 0 }'; }
	passed=$((passed + $(count passed))) failed=$((failed + $(count '(failed|error)'))) skipped=$((skipped + $(count skipped)))
fi
[ "$failures" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1 # a package that did not build counts as a failure
echo "$((SECONDS - begin)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
