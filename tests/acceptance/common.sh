# Sourced by the scripts of tests/acceptance and tests/nightly, never run. Provides a directory, the real data, a cluster of processes, and a cleanup
# that stops and removes only what the script started.
# shellcheck shell=bash
set -euo pipefail
name=$(basename "$0")
arguments="$*"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
shared=${KV_SHARED:-$root/../shared}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kvcluster-data
work=$(mktemp -d "${TMPDIR:-/tmp}/kvcluster-$name.XXXXXX")
cluster=$work/cluster
kv=$root/artifacts/bin/KvCluster.Cli/release/kv
launcher=$root/artifacts/bin/KvCluster.Local/release/kv-local
launcher_pid=
loop_pid=
export DOTNET_CLI_TELEMETRY_OPTOUT=1 DOTNET_NOLOGO=1 NO_COLOR=1

# hundreds: prints each hundred of ports of which somebody listens on one, for example 74.
hundreds() {
  local hex
  for hex in $(awk '$4 == "0A" { sub(/.*:/, "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null); do
    echo $((16#$hex / 100))
  done
}

# free_ports: prints the first of a hundred ports in a row on which nobody listens, for a script beside others. They are below those that tests choose
# (tests/Processes/FreePorts.cs), which are below those of outgoing connections.
free_ports() {
  local hundred taken
  taken=$(hundreds)
  for _ in {1..100}; do
    hundred=$((120 + RANDOM % 50))
    grep -qx "$hundred" <<<"$taken" || break
  done
  echo "${hundred}00"
}

port=${KV_PORT:-$(free_ports)}
export KV_ENDPOINT=http://127.0.0.1:$port

# Exit codes: 0 passed, 1 failed, 77 skipped.
skip() {
  echo "SKIPPED $name: $*"
  exit 77
}

fail() {
  echo "FAILED $name: $*"
  exit 1
}

need() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || skip "$program is not on PATH"
  done
}

# miss WHAT: says that a figure is not what it has to be. The script goes on, so that one figure does not hide what the later steps have to say, and fails at
# its end.
miss() {
  say "MISSED: $*"
  echo "$*" >>"$work/missed"
}

say() { printf '%s: %s\n' "$name" "$*"; }

now_ms() { date +%s%3N; }

# seconds MILLISECONDS: prints the time in seconds with a fraction.
seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

# How many times its limit a time may be with --quick, which is for busy machines, where times mean little: two processors of forty, and a disk that stands
# still for a quarter of a minute. Without, a time is judged as it is.
quick_factor=10

# within VALUE LIMIT WHAT: checks that a figure is below its limit. With --quick it is a failure only above so many times the limit, and otherwise reported as
# missed.
within() {
  local verdict=reached
  if ! jq -en "$1 < $2" >/dev/null; then
    if [[ $arguments != *--quick* ]] || ! jq -en "$1 < $quick_factor * $2" >/dev/null; then
      miss "$3: $1, not under $2"
      return
    fi
    verdict=MISSED
  fi
  say "$verdict: $3: $1, under $2"
}

# start_loop: builds and starts the bare loop (tests/Processes/BareLoop.cs), which does what a call costs without a store for as long as the script runs. To be
# called before anything is measured, because a build takes minutes. $work/loop.tsv has for each round when it ended, in milliseconds, and how many microseconds
# it took.
start_loop() {
  dotnet build "$root/tests/KvCluster.Benchmarks" -c Release -v q >"$work/loop.out" 2>&1 ||
    fail "the bare loop does not build: $(grep -m 1 error "$work/loop.out")"
  "$root/artifacts/bin/KvCluster.Benchmarks/release/KvCluster.Benchmarks" bare-loop "$work" >"$work/loop.tsv" 2>"$work/loop.out" &
  loop_pid=$!
  wait_until 300 "the bare loop runs" test -s "$work/loop.tsv"
}

# most_lost FROM MS: prints how many milliseconds the bare loop lost at most within any MS milliseconds since FROM, the output of now_ms. What a round took
# longer than the fastest one is lost.
most_lost() {
  awk -v from="$1" -v span="$2" '
    NF == 2 && (!fastest || $2 < fastest) { fastest = $2 }
    NF == 2 && $1 >= from { at[++rounds] = $1; took[rounds] = $2 }
    END {
      for (i = 1; i <= rounds; i++) {
        for (lost += took[i] - fastest; at[first + 1] <= at[i] - span; lost -= took[first] - fastest) first++
        if (lost > most) most = lost
      }
      most /= 1000
      printf "%d", most < span ? most : span
    }' "$work/loop.tsv"
}

# beside_loop SECONDS LIMIT FROM WHAT: judges something that took so many seconds and began after FROM, such as the longest pause of callers. A machine that
# does other work has no processor and no disk for them at times, and has none for the bare loop then. So the most that the loop lost within any time of the
# same length is taken off, and what is left must be below the limit. The pause that the machine made longest need not be the one that callers met, so this is
# kinder than comparing moment by moment; and what the cluster itself takes from the loop counts as the machine. But the loop rests most of the time, and so
# gets a processor sooner than programs that compute. So with --quick there is the same factor as above.
beside_loop() {
  local lost verdict=reached
  kill -0 "$loop_pid" 2>/dev/null || fail "the bare loop ended: $(tail -n 1 "$work/loop.out")"
  lost=$(seconds "$(most_lost "$3" "$(jq -n "$1 * 1000 | ceil")")")
  if ! jq -en "$1 - $lost < $2" >/dev/null; then
    if [[ $arguments != *--quick* ]] || ! jq -en "$1 - $lost < $quick_factor * $2" >/dev/null; then
      miss "$4: $1, of which a bare loop lost at most $lost in as long a time; not under $2 without that"
      return
    fi
    verdict=MISSED
  fi
  say "$verdict: $4: $1, of which a bare loop lost at most $lost in as long a time; under $2 without that"
}

# stop PID SECONDS: asks one of our processes to stop, and kills it after that time. Succeeds if it stopped by itself.
stop() {
  local started
  started=$(now_ms)
  kill -TERM "$1" 2>/dev/null || return 0
  while kill -0 "$1" 2>/dev/null; do
    if (($(now_ms) - started > $2 * 1000)); then
      kill -KILL "$1" 2>/dev/null || true
      return 1
    fi
    sleep 0.05
  done
}

end_of_script() {
  local code=$?
  trap - EXIT
  if [[ -e $work/missed ]] && ((code == 0 || code == 77)); then
    echo "FAILED $name: $(head -n 1 "$work/missed")"
    code=1
  fi
  if [[ -n $launcher_pid ]]; then
    stop "$launcher_pid" 10 || echo "$name: the launcher had to be killed"
  fi
  [[ -z $loop_pid ]] || stop "$loop_pid" 10 || echo "$name: the bare loop had to be killed"
  if declare -F release >/dev/null; then
    release "$code"
  fi
  if ((code != 0 && code != 77)); then
    tail -n 8 "$work"/*.out "$cluster"/run/*.log 2>/dev/null | cut -c1-300 || true
  fi
  rm -rf "$work" || echo "$name: $work could not be removed"
  exit "$code"
}
trap end_of_script EXIT
trap 'exit 130' INT TERM

# data FILE: prints the path of an uncompressed file of ../shared/data, which is unpacked once into a cache outside the repository.
data() {
  local packed=$shared/data/$1.xz unpacked=$cache/$1
  if [[ ! -e $unpacked || $packed -nt $unpacked ]]; then
    mkdir -p "$cache"
    xz -dc "$packed" >"$unpacked.$$" && mv "$unpacked.$$" "$unpacked"
  fi
  echo "$unpacked"
}

# records PASSES: prints files.tsv, then the same under another prefix for each further pass, as long a load as a script needs. Ends early, after a
# pass, once $work/enough exists.
records() {
  local pass files
  files=$(data files.tsv)
  cat "$files"
  for pass in $(seq 2 "$1"); do
    [[ ! -e $work/enough ]] || return 0
    sed "s|^|again-$pass/|" "$files"
  done
}

# paced PREFIX FILE: prints records of $work/shuffled.tsv under a prefix, $writes_per_s in a second, until $work/enough exists. FILE gets the same records.
paced() {
  local lines
  while [[ ! -e $work/enough ]] && mapfile -n $((writes_per_s / 10)) -u 3 lines && ((${#lines[@]} > 0)); do
    printf "$1%s" "${lines[@]}"
    sleep 0.1
  done 3<"$work/shuffled.tsv" | tee "$2"
}

need_data() {
  need xz jq
  local file
  for file in "$@"; do
    [[ -e $shared/data/$file.xz ]] || skip "../shared/data/$file.xz is not there"
  done
}

build() {
  if [[ ! -x $launcher || ! -x $kv ]]; then
    dotnet build "$root/deploy/local" -c Release -v q
  fi
}

# outside PACKAGE DIRECTORY HEADING OTHER...: makes $work/app, a program outside of the repository. Its lines are the first block of C# after the heading in
# README.md, which the README of the package must have, too. It references the package that `dotnet pack` makes of the project in the directory. Its only source
# of packages is $work/feed, which has what that command makes and the other packages, from where the build has put them. Sets version, that of the package.
outside() {
  local package=$1 directory=$2 heading=$3 other
  shift 3
  mkdir "$work/app"
  first_block "$root/README.md" "$heading" >"$work/app/Program.cs"
  [[ -s $work/app/Program.cs ]] || fail "README.md has no lines of C# after '$heading'"
  first_block "$root/$directory/README.md" "# $package" | diff "$work/app/Program.cs" - || fail "the package's README has other lines than README.md"

  dotnet pack "$root/$directory" -c Release -o "$work/feed" -v q --nologo >"$work/pack.out" 2>&1 || fail "dotnet pack: $(tail -n 3 "$work/pack.out")"
  for other; do
    cp "${NUGET_PACKAGES:-$HOME/.nuget/packages}/$other"/*/*.nupkg "$work/feed"
  done
  version=$(basename "$work/feed/$package".*.nupkg .nupkg)
  version=${version#"$package".}
  cat >"$work/app/app.csproj" <<XML
<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <OutputType>Exe</OutputType>
    <TargetFramework>net10.0</TargetFramework>
    <ImplicitUsings>enable</ImplicitUsings>
    <Nullable>enable</Nullable>
    <TreatWarningsAsErrors>true</TreatWarningsAsErrors>
    <NuGetAudit>false</NuGetAudit>
  </PropertyGroup>
  <ItemGroup>
    <PackageReference Include="$package" Version="$version" />
  </ItemGroup>
</Project>
XML
  cat >"$work/app/nuget.config" <<XML
<configuration>
  <packageSources>
    <clear />
    <add key="feed" value="../feed" />
  </packageSources>
</configuration>
XML
}

# first_block FILE HEADING: prints the first block of C# after the heading.
first_block() { awk -v heading="$2" '$0 == heading { there = 1 } /^```$/ && inside { exit } inside { print } there && /^```csharp$/ { inside = 1 }' "$1"; }

# make_outside COMMAND...: `dotnet COMMAND...` for the program outside, into $work/bin. It has a package folder of its own, so that no earlier package with this
# version is taken.
make_outside() {
  NUGET_PACKAGES=$work/packages dotnet "$1" "$work/app" -c Release -o "$work/bin" -v q --nologo "${@:2}" >"$work/app.out" 2>&1 ||
    fail "the program was not made: $(grep -m 3 error "$work/app.out")"
}

# outside_client: makes $work/app of the client's package, for the cluster of this script.
outside_client() {
  outside KvCluster.Client client '## From C#' \
    google.api.commonprotos google.protobuf grpc.core.api grpc.net.client grpc.net.common grpc.statusproto polly.core \
    microsoft.extensions.{logging,dependencyinjection}.abstractions
  sed -i "s|http://127.0.0.1:7400|$KV_ENDPOINT|" "$work/app/Program.cs"
}

# client_prints COMMAND...: checks what the program of outside_client prints.
client_prints() {
  local output
  output=$("$@" 2>&1) || fail "the program failed: $(head -n 3 <<<"$output")"
  [[ $output == $'orders/2026/11/0001: four apples\norders/2026/11/0002: two pears' ]] || fail "the program printed: $output"
}

# start_cluster ARGUMENTS: starts the launcher with a process per node, in this script's directory. Returns when the cluster serves.
start_cluster() {
  "$launcher" --processes --data "$cluster" --port "$port" "$@" >>"$work/launcher.out" 2>&1 &
  launcher_pid=$!
  wait_until 300 "the cluster serves" serves
}

serves() {
  kill -0 "$launcher_pid" 2>/dev/null || fail "the launcher ended"
  is_true "$all_led"
}

# comes_true SECONDS COMMAND...: polls until the command succeeds; fails if it does not within that time.
comes_true() {
  local limit=$1 started
  shift
  started=$(now_ms)
  until "$@"; do
    (($(now_ms) - started < limit * 1000)) || return 1
    sleep 0.1
  done
}

# wait_until SECONDS WHAT COMMAND...: polls until the command succeeds; otherwise fails the script and names what was awaited. With --quick it waits five times
# as long.
wait_until() {
  local limit=$1 what=$2
  shift 2
  [[ $arguments != *--quick* ]] || limit=$((limit * 5))
  comes_true "$limit" "$@" || fail "after $limit s still not: $what"
}

# at_most ATTEMPTS COMMAND...: repeats a command until it succeeds. On a busy machine a call may not be answered in time.
at_most() {
  local attempt attempts=$1 code
  shift
  for ((attempt = 1; ; attempt++)); do
    code=0
    "$@" || code=$?
    ((code != 0 && attempt < attempts)) || return "$code"
    sleep 1
  done
}

# status FILTER: `kv status` through jq. FILTER is one of these, or any other.
status() { "$kv" status --output json | jq -r "$1"; }

# Every node answers and every shard has one leader.
all_led='([.nodes[].error == null] | all)
  and ([.nodes[].replicas[].shard] | length > 0)
  and ([.nodes[].replicas[] | select(.role == "leader") | .shard] | sort) == ([.nodes[].replicas[].shard] | unique)'
# Every replica of a shard has applied the same change.
all_level='([.nodes[].error == null] | all)
  and ([.nodes[].replicas[]] | group_by(.shard) | map(map(.applied) | unique | length == 1) | all)'
# The same, and every tree has the same bytes.
all_equal='([.nodes[].error == null] | all)
  and ([.nodes[].replicas[]] | group_by(.shard) | map((map([.digest_etag, .digest]) | unique | length == 1) and .[0].digest != null) | all)'
# The node with the most leaderships; among equals, the one with the most keys.
busiest='[.nodes[] | {node, leads: [.replicas[] | select(.role == "leader")]}] | max_by([(.leads | length), ([.leads[].keys] | add // 0)]) | .node'

is_true() { [[ $(status "$1" 2>/dev/null) == true ]]; }

digests_equal() { "$kv" status --digest --output json >"$work/digests.json" 2>>"$work/status.out" && jq -e "$all_equal" "$work/digests.json" >/dev/null; }

# level_and_equal: waits until all replicas have applied the same, then compares the digests of all trees. It looks again where a node did not answer in time,
# or has just applied the first record of a new leader. Replicas that differ stay different.
level_and_equal() {
  wait_until 300 "all replicas have applied the same" is_true "$all_level"
  comes_true 120 digests_equal || {
    jq -r '.nodes[] | .node as $node | .replicas[] | "node \($node) shard \(.shard) \(.role) \(.digest_etag) \(.digest)"' "$work/digests.json"
    fail "replicas differ"
  }
  jq -r '[.nodes[].replicas[]] | group_by(.shard)[] | "shard \(.[0].shard): \(length) replicas at \(.[0].digest_etag), \(.[0].keys) keys, digest \(.[0].digest[0:16])"' "$work/digests.json" |
    while read -r line; do say "$line"; done
}

# verify FILE: checks that every record of the file is stored with its value.
verify() {
  local code attempt
  for attempt in {1..5}; do
    code=0
    "$kv" verify "$1" --output json >"$work/verify.json" 2>"$work/verify.out" || code=$?
    # 3 says that nobody has answered in time, and nothing of the records.
    ((code == 3)) || break
  done
  ((code == 0)) || {
    cat "$work/verify.json" "$work/verify.out"
    fail "kv verify of $(basename "$1")"
  }
  say "verify $(basename "$1"): $(jq -r '"\(.records) records, \(.missing) missing, \(.different) different, \(.seconds) s"' "$work/verify.json")"
}
