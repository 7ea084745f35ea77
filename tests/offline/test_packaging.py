"""packaging/: the packages contain what they should and have the same bytes each time, and all channels agree on
names and paths."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import release  # noqa: E402

PUBLISHER = {"maintainer": "Ada <ada@example.net>", "repository": "https://host.example/ada/bloomery"}
PACKAGING = ROOT / "packaging"
BLOCKS, LINK = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE), re.compile(r"\]\(([^()\s]+)\)")
COMPLETIONS = ["bash-completion/completions/bloomery", "fish/vendor_completions.d/bloomery.fish", "zsh/site-functions/_bloomery"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """The folder of an archive as scripts/release makes it, except that the module and the program are dummies."""
    folder = tmp_path_factory.mktemp("archive")
    for name in ["bloomery", "libbloomery.so", "THIRD-PARTY-LICENSES.txt", "RUST-LIBRARY-LICENSES.html"]:
        (folder / name).write_text(name)
    for page in ["bloomery.1", "bloomery-load.1"]:
        (folder / "share/man/man1" / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / "share/man/man1" / page).write_text(page)
    for script in COMPLETIONS:
        (folder / "share" / script).parent.mkdir(parents=True)
        (folder / "share" / script).write_text(script)
    subprocess.run(["bash", "-euc", 'source packaging/packages.sh; copy_documents "$1"', "bash", folder], cwd=ROOT, check=True)
    (folder / "redis.conf.example").write_text("loadmodule ./libbloomery.so\n")
    return folder


def pack(function: str, architecture: str, archive: Path, out: Path, umask: int = 0o022) -> Path:
    out.mkdir(exist_ok=True)
    subprocess.run(
        ["bash", "-euc", f'source packaging/packages.sh; {function} "$@"', "bash", archive, out, architecture],
        cwd=ROOT,
        env={**os.environ, **PUBLISHER, "version": "1.2.3", "OLDEST_GLIBC": "2.34", "SOURCE_DATE_EPOCH": "1700000000", "TZ": "Asia/Tokyo"},
        umask=umask,
        check=True,
    )
    (package,) = out.glob("bloomery-redis*")
    return package


def needs(program: str):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


PACKERS = [
    pytest.param("pack_deb", "amd64", marks=needs("dpkg-deb")),
    pytest.param("pack_rpm", "x86_64", marks=needs("rpmbuild")),
]


@pytest.mark.parametrize("function, architecture", PACKERS)
def test_a_package_is_the_same_bytes_each_time(function, architecture, archive, tmp_path):
    one = pack(function, architecture, archive, tmp_path / "one")
    copy = tmp_path / "the archive"
    shutil.copytree(archive, copy)
    for file in copy.rglob("*"):
        os.utime(file, (1_750_000_000, 1_750_000_000))
    other = pack(function, architecture, copy, tmp_path / "another folder", umask=0o077)
    assert one.name == other.name and one.read_bytes() == other.read_bytes()


@needs("dpkg-deb")
def test_what_is_in_the_deb(archive, tmp_path):
    package = pack("pack_deb", "amd64", archive, tmp_path)
    listed = subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True).stdout
    files = {words[5].removeprefix("."): words for words in map(str.split, listed.splitlines())}
    assert {words[1] for words in files.values()} == {"root/root"}
    for path, mode in {
        "/usr/bin/bloomery": "-rwxr-xr-x",
        "/usr/lib/redis/modules/libbloomery.so": "-rwxr-xr-x",  # servers refuse to load a module that isn't executable
        "/usr/lib/systemd/system/bloomery-exporter.service": "-rw-r--r--",
        "/usr/share/man/man1/bloomery-load.1.gz": "-rw-r--r--",
        "/usr/share/zsh/vendor-completions/_bloomery": "-rw-r--r--",
        "/usr/share/doc/bloomery-redis/copyright": "-rw-r--r--",
        "/etc/valkey/bloomery.conf": "-rw-r--r--",
    }.items():
        assert files[path][0] == mode, path
    assert files["/usr/lib/valkey/modules/libbloomery.so"][-2:] == ["->", "../../redis/modules/libbloomery.so"]

    subprocess.run(["dpkg-deb", "--raw-extract", package, tmp_path / "raw"], check=True)
    for server in ["redis", "valkey"]:
        conf = (tmp_path / "raw/etc" / server / "bloomery.conf").read_text()
        assert f"\nloadmodule /usr/lib/{server}/modules/libbloomery.so\n" in conf and "@" not in conf
    control = (tmp_path / "raw/DEBIAN/control").read_text()
    assert not re.search("@[A-Z]", control) and "libc6 (>= 2.34)" in control and "Version: 1.2.3\n" in control
    assert f"Maintainer: {PUBLISHER['maintainer']}\nHomepage: {PUBLISHER['repository']}\n" in control
    assert (tmp_path / "raw/DEBIAN/conffiles").read_text() == "/etc/redis/bloomery.conf\n/etc/valkey/bloomery.conf\n"
    documents = tmp_path / "raw/usr/share/doc/bloomery-redis"
    copyright = (documents / "copyright").read_text()
    assert " in the Software without restriction" in copyright and "@" not in copyright


    for folder in [archive, documents]:
        pages = sorted(folder.rglob("*.md"))
        links = [(page, link) for page in pages for link in LINK.findall(BLOCKS.sub("", page.read_text()))]
        assert len(links) > 500
        dead = [(page, link) for page, link in links if ":" not in link and not (page.parent / link.partition("#")[0]).exists()]
        assert not dead


@needs("rpmbuild")
def test_what_is_in_the_rpm(archive, tmp_path):
    package = pack("pack_rpm", "x86_64", archive, tmp_path)

    def query(*words):
        done = subprocess.run(["rpm", "-qp", *words, package], check=True, capture_output=True, text=True)
        return done.stdout

    files = query("--list").splitlines()
    assert "/usr/lib64/valkey/modules/libbloomery.so" in files and "/usr/share/man/man1/bloomery.1.gz" in files
    assert query("--queryformat", "%{packager} %{url}") == "{maintainer} {repository}".format(**PUBLISHER)
    assert query("--configfiles").split() == ["/etc/redis/bloomery.conf", "/etc/valkey/bloomery.conf"]
    assert (PACKAGING / "before-removal").read_text().strip() in query("--scripts")  # no macro of rpm's is in it


@pytest.mark.parametrize("argument", ["upgrade", "failed-upgrade", "1"])
def test_an_upgrade_is_no_removal(argument):
    done = subprocess.run(["sh", "-x", PACKAGING / "before-removal", argument], capture_output=True, text=True, check=True)
    assert "systemctl" not in done.stderr


# Lines of /etc/redis/NAME, and whether a server that reads them needs the package.
LINES = [
    ("redis.conf", "include /etc/redis/bloomery.conf", True),
    ("redis.conf", "  include\t/etc/redis/bloomery.conf", True),
    ("redis.conf", "INCLUDE '/etc/redis/bloomery.conf'", True),
    ("redis.conf", 'include "/etc/redis/bloomery.conf"', True),
    ("redis.conf", "include /etc/redis/*.conf", True),
    ("redis.conf", "include bloomery.conf", True),
    ("redis.conf", "include /etc/redis/conf.d/*", True),  # a link to bloomery.conf is there
    ("redis.conf", "loadmodule /usr/lib/redis/modules/libbloomery.so threads 2", True),
    ("redis.conf", "\tLoadModule \"/usr/lib/../lib/redis/modules/libbloomery.so\"", True),
    ("redis.conf", "loadmodule /usr/lib/valkey/modules/libbloomery.so\r", True),
    ("redis.conf", 'loadmodule /usr/lib/redis/modules/libbloomery.so note "a\\nb\\c"', True),
    ("redis.conf", 'include "/etc/redis/a folder/link.conf"', True),
    ("redis.conf", "include '/etc/redis/a f*/*.conf'", True),
    ("redis.conf", 'include "/etc/redis/\\x62loomery.conf"', True),  # the server's escapes: the script doesn't read them
    ("redis.conf", "include /etc/redis/'a folder/link.conf'", True),
    ("two\nlines.conf", "include /etc/redis/bloomery.conf", True),
    ("redis-server@cache.conf", "include /etc/redis/bloomery.conf", True),
    ("instances/one.conf", "loadmodule /usr/lib/redis/modules/libbloomery.so", True),
    ("redis.conf", "# include /etc/redis/bloomery.conf", False),
    ("redis.conf", "include /etc/redis/conf.d/other*", False),
    ("redis.conf", "loadmodule /opt/libbloomery.so", False),  # of another build
    ("redis.conf", 'loadmodule /opt/libbloomery.so note "a\\nb"', False),
    ("redis.conf", 'include "/etc/redis/a folder/other.conf"', False),
    ("redis.conf", "logfile /etc/redis/bloomery.conf", False),
    ("sentinel.conf", "sentinel monitor bloomery 127.0.0.1 6379 2", False),
]


@pytest.mark.parametrize("name, line, needs_it", LINES, ids=[f"{name}: {line}" for name, line, _ in LINES])
def test_a_removal_names_the_lines_that_need_the_package(name, line, needs_it, tmp_path):
    for folder in ["etc/redis/conf.d", "etc/redis/a folder", "etc/redis/instances", "etc/valkey", "opt"]:
        (tmp_path / folder).mkdir(parents=True)
    for server in ["redis", "valkey"]:
        (tmp_path / "usr/lib" / server / "modules").mkdir(parents=True)
    (tmp_path / "etc/redis/bloomery.conf").write_text("loadmodule /usr/lib/redis/modules/libbloomery.so\n")
    for link in ["conf.d/filters.conf", "a folder/link.conf"]:
        (tmp_path / "etc/redis" / link).symlink_to("../bloomery.conf")
    for other in ["conf.d/other.conf", "a folder/other.conf"]:
        (tmp_path / "etc/redis" / other).write_text("save \"\"\n")
    module = tmp_path / "usr/lib/redis/modules/libbloomery.so"
    for path in [module, tmp_path / "opt/libbloomery.so"]:
        path.write_text("")
    (tmp_path / "usr/lib/valkey/modules/libbloomery.so").symlink_to("../../redis/modules/libbloomery.so")
    (tmp_path / "etc/redis" / name).write_bytes(b"# \xe4 \0\n\n" + f"{line}\n".encode())  # grep takes the file for binary
    (tmp_path / "systemctl").symlink_to(shutil.which("true"))  # the script disables the exporter
    named = f"{tmp_path}/etc/redis/{name}:3:{line.rstrip()}"
    assert removal(tmp_path).partition("\n")[2].rstrip() == named * needs_it


def removal(root: Path) -> str:
    """What before-removal prints before the package is removed from the system in the folder `root`."""
    environment = {"PATH": f"{root}:{os.environ['PATH']}", "DPKG_ROOT": str(root)}
    script = [PACKAGING / "before-removal", "remove"]
    return subprocess.run(["sh", *script], env=environment, capture_output=True, text=True, check=True).stderr


# What CONFIG REWRITE and ACL SAVE write besides the line that loads the module, and whether only the module knows it.
REST = [
    ("bf.error-rate 0.001", True),  # Redis 7 and Valkey
    ("bf-error-rate 0.001", True),  # Redis 8
    ("cf-bucket-size 4", True),
    ("user exporter on #12ab %R~* resetchannels -@all +info +bf.stats", True),
    ("USER web on nopass ~* +@all -@cuckoo", True),
    ("user sketches on nopass -@all (~* +tdigest.add)", True),
    ("user default on nopass ~* &* +@all", False),
    ("user bf.web on nopass ~bf.* +get", False),
    ("# bf.error-rate 0.001", False),
    ("appendonly yes", False),
]


@pytest.mark.parametrize("loads", [True, False])
def test_a_removal_names_options_and_permissions(loads, tmp_path):
    (tmp_path / "systemctl").symlink_to(shutil.which("true"))
    folder = tmp_path / "etc/valkey"
    folder.mkdir(parents=True)
    (folder / "bloomery.conf").write_text("loadmodule /usr/lib/valkey/modules/libbloomery.so\nbf.threads 2\n")
    include = f"{'' if loads else '# '}include /etc/valkey/bloomery.conf"
    (folder / "valkey.conf").write_text("\n".join([include, *(line for line, _ in REST)]))
    (folder / "users.acl").write_text(f"{REST[3][0]}\n")
    named = [f"{folder}/users.acl:1:{REST[3][0]}"]
    named += [f"{folder}/valkey.conf:{number}:{line}" for number, (line, ours) in enumerate(REST, 2) if ours]
    said = removal(tmp_path).splitlines()
    assert [line for line in said if line.startswith("/")] == [f"{folder}/valkey.conf:1:{include}", *named] * loads


def test_everything_names_the_same_module_and_user():
    dockerfile = (PACKAGING / "oci/Dockerfile").read_text()
    assert set(re.findall(r"^USER (.*)", dockerfile, flags=re.M)) == {"999:999"}
    assert dockerfile.count("id 999") == 4  # the groups and the users of both servers
    (copied,) = re.findall(r"COPY --from=module (\S+) /libbloomery.so", dockerfile)
    assert copied == "/usr/lib/redis/modules/libbloomery.so"
    (folder,) = re.findall(r'CMD \["(.*?)"\]', dockerfile)
    for file in sorted((PACKAGING / "kubernetes").iterdir()):
        text = file.read_text()
        (target,) = set(re.findall(r"image: \S+:(\w+)-", text))
        if target == "init":
            assert f"mountPath: {folder.rstrip('/')}\n" in text and f" {folder}libbloomery.so\n" in text, file.name
        elif target == "redis":
            assert f" {copied}\n" in text, file.name
    assert "ExecStart=bloomery exporter" in (ROOT / "ops/systemd/bloomery-exporter.service").read_text()


def test_compose_mounts_files_that_are_there():
    folder = PACKAGING / "compose"
    compose = (folder / "compose.yaml").read_text()
    mounts = re.findall(r"- (\.\S+?):(\S+?):ro$", compose, flags=re.M)
    assert len(mounts) == 5
    for source, _ in mounts:
        assert (folder / source).is_file(), source
    places = {target for _, target in mounts}
    (dashboards,) = re.findall(r"path: (\S+)", (folder / "grafana/dashboards.yml").read_text())
    assert f"{dashboards}/bloomery.json" in places and "/etc/prometheus/alerts.yml" in places
    assert "target: valkey" in compose and "AS valkey\n" in (PACKAGING / "oci/Dockerfile").read_text()


def test_prometheus_in_compose_has_the_job_that_the_alerts_know():
    def without_target(path):
        lines = [line for line in path.read_text().splitlines() if line and not line.lstrip().startswith("#")]
        return lines[:-1], lines[-1].rpartition(":")[2]

    assert without_target(PACKAGING / "compose/prometheus.yml") == without_target(ROOT / "ops/prometheus/prometheus.yml")


def test_the_guide_names_every_channel():
    guide = (ROOT / "docs/INSTALL.md").read_text()
    kubernetes = (ROOT / "docs/KUBERNETES.md").read_text()
    for file in (PACKAGING / "kubernetes").iterdir():
        assert f"`{file.name}`" in kubernetes and f"packaging/kubernetes/{file.name}\n" in file.read_text()
    for target in re.findall(r"^FROM .* AS (valkey|redis|init)$", (PACKAGING / "oci/Dockerfile").read_text(), flags=re.M):
        assert f"`{target}`" in guide
    listed = re.findall(r"^\| `(\S+?)[/`]", (PACKAGING / "README.md").read_text(), flags=re.M)
    assert sorted([*listed, "README.md"]) == sorted(path.name for path in PACKAGING.iterdir())


# What each object needs besides apiVersion, kind and metadata.name.
NEEDED = {
    "ConfigMap": {"data"},
    "Secret": {"stringData"},
    "Deployment": {"spec.selector.matchLabels", "spec.template.metadata.labels", "spec.template.spec.containers"},
    "Service": {"spec.selector", "spec.ports"},
    "NetworkPolicy": {"spec.podSelector", "spec.policyTypes", "spec.ingress"},
    "Probe": {"spec.jobName", "spec.prober.url", "spec.targets.staticConfig.static"},
    "ServiceMonitor": {"spec.selector.matchLabels", "spec.endpoints"},
    "RedisFailover": {"spec.redis.command", "spec.redis.image", "spec.sentinel"},
    "RedisReplication": {"spec.clusterSize", "spec.kubernetesConfig.image", "spec.redisConfig.additionalRedisConfig"},
}


def kubernetes(name: str) -> list[dict]:
    return list(yaml.safe_load_all((PACKAGING / "kubernetes" / name).read_text()))


def field(value, path: str):
    for key in path.split("."):
        value = value[key]
    return value


@pytest.mark.parametrize("name", ["exporter.yaml", "opstree.yaml", "spotahome.yaml"])
def test_the_objects_for_kubernetes_have_what_they_need(name):
    for thing in kubernetes(name):
        assert all(field(thing, path) for path in {"apiVersion", "metadata.name", *NEEDED[thing["kind"]]}), thing["kind"]


@pytest.mark.parametrize("name, pods", [("valkey", [""]), ("bitnami-redis", ["master", "replica"]), ("bitnami-valkey", ["primary", "replica"])])
def test_every_pod_of_a_chart_has_the_module(name, pods):
    (values,) = kubernetes(f"{name}.yaml")
    for pod in (values[pod] if pod else values for pod in pods):
        (init,) = pod.get("initContainers") or pod["extraInitContainers"]
        mounted = {mount["name"] for mount in init["volumeMounts"] + pod["extraVolumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["extraVolumes"]}
        assert "/modules/libbloomery.so" in str(pod.get("extraFlags") or pod["valkeyConfig"])


def test_the_exporter_in_kubernetes():
    things = {thing["kind"]: thing for thing in kubernetes("exporter.yaml")}
    (container,) = field(things["Deployment"], "spec.template.spec.containers")
    labels = things["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert labels == field(things["Deployment"], "spec.selector.matchLabels") == things["Service"]["spec"]["selector"]
    assert labels == field(things["NetworkPolicy"], "spec.podSelector.matchLabels") == things["Service"]["metadata"]["labels"]
    assert labels == field(things["ServiceMonitor"], "spec.selector.matchLabels")
    (port,), (named,) = container["ports"], things["Service"]["spec"]["ports"]
    assert container["command"][-1] == f"0.0.0.0:{port['containerPort']}" and named["targetPort"] == port["name"]
    assert field(things["Probe"], "spec.prober.url") == f"{things['Service']['metadata']['name']}:{named['port']}"
    paths = {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    paths.add(field(things["Probe"], "spec.prober.path"))
    http = "".join(file.read_text() for file in (ROOT / "cli/src/command/exporter").glob("*.rs"))
    assert all(f'"{path}"' in http for path in paths)

    # Each server is in the Secret and in the Probe, and its password is where the Secret puts it.
    files = things["Secret"]["stringData"]
    (mount,) = container["volumeMounts"]
    lines = [line.split() for line in files["targets"].splitlines()]
    assert [line[0] for line in lines] == field(things["Probe"], "spec.targets.staticConfig.static")
    assert {line[-1] for line in lines} == {f"{mount['mountPath']}/{name}" for name in files if name != "targets"}
    jobs = yaml.safe_load((ROOT / "ops/prometheus/fleet.yml").read_text())["scrape_configs"]
    assert [job["job_name"] for job in jobs] == [field(things["Probe"], "spec.jobName"), things["Service"]["metadata"]["name"]]


@pytest.mark.parametrize("files, pattern, value", list(release.places()))
def test_who_publishes_is_the_same_everywhere(files, pattern, value):
    """`scripts/release.py publisher` makes it so."""
    found = {found for text in release.tracked(files).values() for found in pattern.findall(text)}
    assert found == {value}


def test_no_stand_in_is_left_when_the_publisher_is_filled_in():
    values = [value for value in release.publisher().values() if "example.org" in value]
    stand_ins = {re.search(r"[\w@./-]*example\.org[\w/]*", value)[0] for value in values}
    for file, text in release.tracked(".").items():
        if file.name != "Cargo.toml" and any(stand_in in text for stand_in in stand_ins):
            for files, pattern, _ in release.places():
                text = pattern.sub("", text) if file.is_relative_to(ROOT / files) else text
            assert not [stand_in for stand_in in stand_ins if stand_in in text], file
