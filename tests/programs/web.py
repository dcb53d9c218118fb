# SPDX-License-Identifier: Apache-2.0
"""Web servers."""

import os
import signal

from tests.programs.asks import BODY, BULK, both, bulk, http, https, quick, secure
from tests.programs.checks import proxies, reload, replaced, serves, threads, workers
from tests.programs.program import Program


def site(place):
    (place.dir / "index.html").write_text(BODY)
    (place.dir / "large").write_bytes(os.urandom(BULK))


PAGES = both(http(), bulk())
SECURE = both(https(), bulk(scheme="https"))
PROXIED = http("/proxied/", "client")

NGINX = """\
worker_processes 2;
daemon off;
user www-data;
pid {dir}/pid;
error_log stderr notice;
events { worker_connections 1024; }
http {
    access_log off;
    {temporary}
    sendfile on;
    server {
        listen {port};
        listen [::]:{port};
        listen {tls} ssl;
        listen [::]:{tls} ssl;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        root {dir};
        location /proxied/ { proxy_pass http://{peer}:{backend}/; }
        location /threads/ { aio threads; alias {dir}/; }
    }
}
"""

LIGHTTPD = """\
server.document-root = "{dir}"
server.port = {port}
server.bind = "0.0.0.0"
server.modules = ( "mod_proxy", "mod_openssl" )
server.max-worker = 2
mimetype.assign = ( "" => "text/plain" )
$SERVER["socket"] == "[::]:{port}" { }
ssl.pemfile = "{cert}"
ssl.privkey = "{key}"
$SERVER["socket"] == "0.0.0.0:{tls}" { ssl.engine = "enable" }
$SERVER["socket"] == "[::]:{tls}" { ssl.engine = "enable" }
$HTTP["url"] =~ "^/proxied/" {
    proxy.header = ( "map-urlpath" => ( "/proxied/" => "/" ) )
    proxy.server = ( "" => ( ( "host" => "{peer}", "port" => {backend} ) ) )
}
"""

H2O = """\
user: www-data
num-threads: 4
pid-file: {dir}/pid
listen: {port}
listen:
  port: {tls}
  ssl:
    certificate-file: {cert}
    key-file: {key}
    ocsp-update-interval: 0
hosts:
  default:
    paths:
      /: { file.dir: "{dir}" }
      /proxied/: { proxy.reverse.url: "http://{peer}:{backend}/" }
"""

APACHE = """\
ServerRoot /usr/lib/apache2
ServerName test
PidFile {dir}/pid
ErrorLog /dev/stderr
LISTEN
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule proxy_module modules/mod_proxy.so
LoadModule proxy_http_module modules/mod_proxy_http.so
LoadModule socache_shmcb_module modules/mod_socache_shmcb.so
LoadModule ssl_module modules/mod_ssl.so
User www-data
Group www-data
DocumentRoot {dir}
ProxyPass /proxied/ http://{peer}:{backend}/
"""
APACHE_TLS = """\
SSLCertificateFile {cert}
SSLCertificateKeyFile {key}
"""
APACHE_BOTH = """\
<VirtualHost *:{tls}>
    SSLEngine on
    SSLCertificateFile {cert}
    SSLCertificateKeyFile {key}
    DocumentRoot {dir}
</VirtualHost>
"""

EVENT = """\
LoadModule mpm_event_module modules/mod_mpm_event.so
StartServers 2
ServerLimit 4
ThreadsPerChild 8
MaxRequestWorkers 16
MinSpareThreads 8
MaxSpareThreads 16
"""

PREFORK = """\
LoadModule mpm_prefork_module modules/mod_mpm_prefork.so
StartServers 4
MinSpareServers 4
MaxSpareServers 4
MaxRequestWorkers 4
ServerLimit 4
"""

PROGRAMS = (
    Program(
        "nginx",
        7000,
        ("nginx", "-c", "{dir}/conf"),
        {
            "serves": serves(PAGES),
            "proxies": proxies(PROXIED),
            "TLS": serves(SECURE),
            "threads": threads(bulk("/threads/large"), 4),
            "fork": workers(http()),
            "reload": reload(quick(), signal.SIGHUP, replaced),
        },
        files={"conf": NGINX},
        prepare=site,
        workers=2,
        sample=True,
    ),
    Program(
        "lighttpd",
        7010,
        ("lighttpd", "-D", "-f", "{dir}/conf"),
        {
            "serves": serves(PAGES),
            "proxies": proxies(PROXIED),
            "TLS": serves(SECURE),
            "fork": workers(http()),
            "reload": reload(quick(), signal.SIGUSR1, replaced),
        },
        files={"conf": LIGHTTPD},
        prepare=site,
        workers=2,
        sample=True,
    ),
    Program(
        "h2o",
        7050,
        ("h2o", "-c", "{dir}/conf"),
        {
            "serves": serves(PAGES),
            "proxies": proxies(PROXIED),
            "TLS": serves(SECURE),
            "threads": threads(PAGES, 4),
        },
        files={"conf": H2O},
        prepare=site,
    ),
    Program(
        "webfs",
        7060,
        ("webfsd", "-F", "-p", "{port}", "-r", "{dir}", "-u", "www-data"),
        {"serves": serves(PAGES)},
        prepare=site,
    ),
    Program(
        "Apache event",
        7020,
        ("apache2", "-DFOREGROUND", "-f", "{dir}/conf"),
        {
            "serves": serves(PAGES),
            "proxies": proxies(PROXIED),
            "TLS": serves(SECURE),
            "threads": threads(http(), 8, clients=12),
            "fork": workers(http()),
            "reload": reload(quick(), signal.SIGUSR1, replaced),
        },
        files={
            "conf": APACHE.replace("LISTEN", "Listen {port}\nListen {tls}") + EVENT + APACHE_BOTH
        },
        prepare=site,
        workers=2,
    ),
    Program(
        "Apache prefork",
        7030,
        ("apache2", "-DFOREGROUND", "-f", "{dir}/conf"),
        {
            "serves": serves(PAGES),
            "proxies": proxies(PROXIED),
            "fork": workers(http(), clients=4),
            "reload": reload(quick(), signal.SIGUSR1, replaced),
        },
        files={"conf": APACHE.replace("LISTEN", "Listen {port}") + PREFORK},
        prepare=site,
        workers=4,
    ),
    Program(
        "Apache prefork, TLS",
        7034,
        ("apache2", "-DFOREGROUND", "-f", "{dir}/conf"),
        {"TLS": serves(secure("/index.html", BODY))},
        files={
            "conf": APACHE.replace("LISTEN", "Listen {port}")
            + PREFORK
            + "SSLEngine on\n"
            + APACHE_TLS
        },
        prepare=site,
        workers=4,
        row="Apache prefork",
    ),
    Program(
        "nghttpd",
        7040,
        ("nghttpd", "-n", 2, "--no-tls", "-d", "{dir}", "{port}"),
        {
            "serves": serves(
                lambda place, address: h2(place, f"http://{place.at(address)}/index.html")
            ),
            "threads": threads(
                lambda place, address: h2(place, f"http://{place.at(address)}/index.html"), 3
            ),
        },
        prepare=site,
    ),
)


def h2(place, url):
    got = place.curl(url, "--http2-prior-knowledge")
    assert got == BODY, got
