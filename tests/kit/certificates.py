"""Certificates for TLS tests."""

import subprocess
from pathlib import Path


def certificates(folder: Path) -> Path:
    """Creates an authority, `ca.pem`, and two certificates signed by it for 127.0.0.1: `server` and `client`, each as
    .pem and .key."""

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext"]
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return folder


def tls(folder: Path, port: int) -> dict:
    """The configuration of a server that listens for TLS on this port and requires a certificate from its clients."""
    return {
        "tls-port": port,
        "tls-cert-file": folder / "server.pem",
        "tls-key-file": folder / "server.key",
        "tls-ca-cert-file": folder / "ca.pem",
        "tls-auth-clients": "yes",
    }
