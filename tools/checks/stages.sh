# Stages of a script that checks one thing after another: their names and their minutes. To be
# sourced by a script with `set -eu`, in the root of the tree.

# The LibTorch versions: the oldest that is supported, the one that is installed where there is none, the newest.
oldest=2.7.0
usual=2.11.0
newest=2.15.0

started=$(date +%s)
stage=
line() { printf '%3d min %02d s  %s' $(($1 / 60)) $(($1 % 60)) "$2"; }

# Ends the stage before and begins the next one; without a name, ends the last one and prints the minutes of all.
begin() {
  now=$(date +%s)
  [ -z "$stage" ] || minutes="${minutes:-}$(line $((now - since)) "$stage")
"
  stage=$1
  since=$now
  if [ -n "$stage" ]; then
    echo "== $stage"
  else
    echo "== all of it passed"
    printf '%s' "$minutes"
    line $((now - started)) "in all"
    echo
  fi
}
