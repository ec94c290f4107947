#!/usr/bin/env bash
# A merge smoke test for CI: six small clients on skewed digits, one Fisher-weighted merge, one JSON line.
# Exit status: 0 the merge is better than the floor; 1 it is not; 2 a command was at fault, and says how.
#
#   smoke.sh [METHOD] [FLOOR]        fedfiot and 0.4 by default
set -euo pipefail
method=${1:-fedfiot}
floor=${2:-0.4}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

modelfuse --quiet run - > result.json <<END
init --architecture mlp:in=64,hidden=32-16,out=10 -o init.safetensors
partition --data digits -K 6 --alpha 1 -o split.safetensors
train-client init.safetensors --data digits --partition split.safetensors --client all --jobs 1 -E 8 --momentum 0.9 -o clients
fisher clients --data digits --partition split.safetensors --client all -o fishers
merge --method $method clients fishers -o global.safetensors
eval global.safetensors --data digits --label method=$method --json
END
python "$here/check.py" "$floor" < result.json
