#!/bin/sh
# Sets up what the Makefile needs: `setup.sh python DIRECTORY` a virtual environment, `setup.sh java` a Java,
# `setup.sh lowest DIRECTORY OTHER` one with the oldest packages that are allowed,
# `setup.sh environment DIRECTORY PYTHON PINS` one with that Python and the packages of that file,
# `setup.sh postgres` the PostgreSQL server that the tests of the journal talk to,
# `setup.sh redis` the Redis server that the tests of the Yahoo benchmark talk to,
# `setup.sh prometheus` the Prometheus, with promtool, that scrapes and checks in the tests of metrics.
# `setup.sh browser` the Chromium, with its driver, in which the tests look at pages.
# `setup.sh helm` builds the Helm that renders the chart in deploy/, with Go, and prints where it is.
# Ends with one line that says what to install where it cannot install it itself.
set -eu

give_up() {
    echo "setup: $1" >&2
    exit 2
}

can_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1
}

# Each word is a choice of its own: the first that this distribution has is installed.
install_first_of() {
    echo "setup: installing one of: $*" >&2
    apt-get update -qq >&2 || return 1
    for package in "$@"; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2 && return
    done
    return 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for name in python3.13 python3.12 python3.11 python3; do
        # asked, not only looked up: a version manager's stub may be there without its Python
        if command -v "$name" >/dev/null 2>&1 && is_new_enough "$name"; then
            echo "$name"
            return
        fi
    done
    return 1
}

make_environment() {
    if "$1" -c 'import ensurepip, venv' >/dev/null 2>&1 && "$1" -m venv --clear "$2"; then
        return
    fi
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    needed="the modules venv and ensurepip of $1, python$version-venv on Debian and Ubuntu"
    can_install || give_up "Python cannot make a virtual environment: install $needed, and run make again"
    install_first_of "python$version-venv" python3-venv || give_up "could not install $needed"
    "$1" -m venv --clear "$2" || give_up "$1 still cannot make a virtual environment: install $needed"
}

set_up_python() {
    environment=$1
    if ! is_new_enough "$environment/bin/python" || ! "$environment/bin/python" -m pip --version >/dev/null 2>&1
    then
        python=$(find_python) || give_up "Python 3.11 or later is needed: install it, and run make again"
        echo "setup: making $environment with $("$python" --version)" >&2
        make_environment "$python" "$environment"
    fi
    echo "setup: installing the packages of requirements.txt" >&2
    install="$environment/bin/python -m pip install --quiet --disable-pip-version-check"
    $install --requirement requirements.txt || give_up "pip could not install requirements.txt"
    $install --no-deps --no-build-isolation --editable . --editable ./penstock_lab || give_up "pip could not install the project itself"
    touch "$environment/.ready"
}

# An environment of its own for a given Python and given pins; kept until one of the pins changes.
set_up_environment() {
    if [ -f "$1/.ready" ] && cmp -s "$3" "$1/pins.txt"; then
        return
    fi
    echo "setup: making $1 with $("$2" --version)" >&2
    make_environment "$2" "$1"
    install="$1/bin/python -m pip install --quiet --disable-pip-version-check"
    $install --requirement "$3" || give_up "pip could not install the packages for $1"
    $install --no-deps --no-build-isolation --editable . --editable ./penstock_lab || give_up "pip could not install the project itself"
    cp "$3" "$1/pins.txt"
    touch "$1/.ready"
}

# The lower bounds are read with the packages of the environment that the other targets use.
set_up_lowest() {
    python=$(find_python) || give_up "Python 3.11 or later is needed: install it, and run make again"
    echo "setup: making $1 with $("$python" --version)" >&2
    make_environment "$python" "$1"
    "$2/bin/python" scripts/lowest.py >"$1/lowest.txt" || give_up "the lower bounds cannot be read"
    install="$1/bin/python -m pip install --quiet --disable-pip-version-check"
    $install --requirement "$1/lowest.txt" || give_up "pip could not install the lower bounds of pyproject.toml"
    $install --no-deps --no-build-isolation --editable . --editable ./penstock_lab || give_up "pip could not install the project itself"
    touch "$1/.ready"
}

is_java_new_enough() {
    version=$("$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

set_up_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        # Spark looks nowhere else then
        is_java_new_enough "$JAVA_HOME/bin/java" ||
            give_up "JAVA_HOME holds no Java 17 or later: unset it, or let it name one, and run make again"
        return
    fi
    is_java_new_enough java && return
    needed="Java 17 or later, openjdk-17-jre-headless on Debian and Ubuntu"
    can_install || give_up "Spark needs $needed: install it, and run make again"
    install_first_of openjdk-17-jre-headless openjdk-21-jre-headless || give_up "could not install $needed"
    is_java_new_enough java || give_up "the java first on PATH is not $needed"
}

set_up_redis() {
    command -v redis-server >/dev/null 2>&1 && return
    needed="redis-server, of the package redis-server on Debian and Ubuntu"
    can_install || give_up "the tests need $needed: install it, and run make again"
    install_first_of redis-server redis || give_up "could not install $needed"
}

set_up_prometheus() {
    command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1 && return
    needed="prometheus and promtool, of the package prometheus on Debian and Ubuntu"
    can_install || give_up "the tests of metrics need $needed: install it, and run make again"
    install_first_of prometheus || give_up "could not install $needed"
}

set_up_browser() {
    command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1 && return
    needed="chromium and chromedriver, of the packages chromium and chromium-driver on Debian"
    can_install || give_up "the tests of pages need $needed: install them, and run make again"
    # the driver asks for the browser of its own version
    install_first_of chromium-driver || give_up "could not install $needed"
    command -v chromium >/dev/null 2>&1 || install_first_of chromium || give_up "could not install $needed"
}

# As old as will do: a newer one asks for a newer Go.
HELM_VERSION=v3.19.5

set_up_helm() {
    place=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/helm-$HELM_VERSION
    if [ ! -x "$place/helm" ]; then
        command -v go >/dev/null 2>&1 || give_up "the chart's test builds Helm with Go 1.24 or later: install it, and run make again"
        echo "setup: building Helm $HELM_VERSION, which takes some minutes" >&2
        GOBIN=$place GOFLAGS=-mod=mod go install "helm.sh/helm/v3/cmd/helm@$HELM_VERSION" >&2 || give_up "Helm could not be built"
    fi
    echo "$place/helm"
}

set_up_postgres() {
    command -v postgres >/dev/null 2>&1 && return
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 && return
    needed="a PostgreSQL server, postgresql on Debian and Ubuntu"
    can_install || give_up "the tests of the journal need $needed: install it, and run make again"
    install_first_of postgresql || give_up "could not install $needed"
}

cd "$(dirname "$0")/.."
case "${1:-}" in
    python) set_up_python "${2:-.venv}" ;;
    lowest) set_up_lowest "$2" "$3" ;;
    environment) set_up_environment "$2" "$3" "$4" ;;
    java) set_up_java ;;
    postgres) set_up_postgres ;;
    redis) set_up_redis ;;
    prometheus) set_up_prometheus ;;
    browser) set_up_browser ;;
    helm) set_up_helm ;;
    *) give_up "usage: setup.sh python [DIRECTORY] | setup.sh lowest DIRECTORY OTHER | setup.sh environment DIRECTORY PYTHON PINS | setup.sh java | setup.sh postgres | setup.sh redis | setup.sh prometheus | setup.sh browser | setup.sh helm" ;;
esac
