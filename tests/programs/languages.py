# SPDX-License-Identifier: Apache-2.0
"""Servers of languages: Python, JavaScript, Java, Ruby, PHP, Go."""

import signal
import sys

from tests.lab.clients import connect
from tests.lab.process import run
from tests.lab.servers import wait_listening
from tests.programs.asks import BODY, held, http, https, quick, secure
from tests.programs.checks import (
    children,
    left_to_linux,
    proxies,
    reload,
    replaced,
    serves,
    threads,
    workers,
)
from tests.programs.program import Program

PROXIED = http("/proxied", "client")

GUNICORN = """
import urllib.request
def app(environ, start_response):
    body = b"hello"
    if environ["PATH_INFO"] == "/proxied":
        body = urllib.request.urlopen("http://{peer}:{backend}/").read()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""

UVLOOP = """
import asyncio, ssl, uvloop
async def fetch():
    reader, writer = await asyncio.open_connection("{peer}", {backend})
    writer.write(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    body = (await reader.read()).partition(b"\\r\\n\\r\\n")[2]
    writer.close()
    return body
async def serve(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    body = await fetch() if b"/proxied" in head else b"hello"
    writer.write(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n" + body)
    await writer.drain()
    writer.close()
async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("{cert}", "{key}")
    await asyncio.start_server(serve, ["0.0.0.0", "::"], {tls}, ssl=context)
    await (await asyncio.start_server(serve, ["0.0.0.0", "::"], {port})).serve_forever()
RUN
"""

NODE = """
const http = require("http"), https = require("https");
const fs = require("fs"), cluster = require("cluster");
function serve(request, answer) {
    if (request.url != "/proxied") return answer.end("hello");
    http.get("http://{peer}:{backend}/", (got) => got.pipe(answer));
}
if (process.argv[2] == "cluster" && cluster.isPrimary) {
    cluster.fork(); cluster.fork();
} else {
    http.createServer(serve).listen({port}, "::");
    const own = { cert: fs.readFileSync("{cert}"), key: fs.readFileSync("{key}") };
    https.createServer(own, serve).listen({tls}, "::");
}
"""

JAVA = """
import com.sun.net.httpserver.*;
import java.io.*;
import java.net.*;
import java.security.KeyStore;
import java.util.concurrent.Executors;
import javax.net.ssl.*;
public class Serve {
    static void answer(HttpExchange x) throws IOException {
        byte[] body = "hello".getBytes();
        if (x.getRequestURI().getPath().equals("/proxied"))
            body = new URL("http://{peer}:{backend}/").openStream().readAllBytes();
        x.sendResponseHeaders(200, body.length);
        x.getResponseBody().write(body);
        x.close();
    }
    public static void main(String[] words) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(new FileInputStream("{dir}/store"), "secret".toCharArray());
        KeyManagerFactory keys = KeyManagerFactory.getInstance("SunX509");
        keys.init(store, "secret".toCharArray());
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        HttpsServer secure = HttpsServer.create(new InetSocketAddress({tls}), 64);
        secure.setHttpsConfigurator(new HttpsConfigurator(context));
        HttpServer plain = HttpServer.create(new InetSocketAddress({port}), 64);
        for (HttpServer one : new HttpServer[] {secure, plain}) {
            one.createContext("/", Serve::answer);
            one.setExecutor(Executors.newFixedThreadPool(8));
            one.start();
        }
    }
}
"""


def prepare_java(place):
    run(
        [
            "openssl",
            "pkcs12",
            "-export",
            "-in",
            place.cert,
            "-inkey",
            place.key,
            "-out",
            place.dir / "store",
            "-passout",
            "pass:secret",
        ]
    )


PUMA = """
require "net/http"
run lambda { |env|
  body = env["PATH_INFO"] == "/proxied" ? Net::HTTP.get(URI("http://{peer}:{backend}/")) : "hello"
  [200, { "Content-Length" => body.bytesize.to_s }, [body]]
}
"""

PUMA_CONF = """
workers 2
threads 4, 4
bind "tcp://[::]:{port}"
bind "ssl://[::]:{tls}?key={key}&cert={cert}"
"""

PHP = """\
<?php echo isset($_GET['proxied']) ? file_get_contents('http://{peer}:{backend}/') : 'hello';
"""

PHP_FPM = """
[global]
pid = {dir}/pid
error_log = /proc/self/fd/2
daemonize = no
[www]
user = www-data
group = www-data
listen = [::]:{port}
pm = static
catch_workers_output = yes
decorate_workers_output = no
pm.max_children = 4
"""

# nginx on the client's host, on Linux's TCP.
PHP_NGINX = """\
daemon off;
master_process off;
user root;
pid {dir}/nginx-pid;
error_log {dir}/nginx-log;
events { worker_connections 1024; }
http {
    access_log off;
    {temporary}
    server {
        listen 127.0.0.1:{tls};
        location /4/ { fastcgi_pass {v4}:{port}; include conf-fastcgi; }
        location /6/ { fastcgi_pass [{v6}]:{port}; include conf-fastcgi; }
    }
}
"""
FASTCGI = """\
fastcgi_param SCRIPT_FILENAME {dir}/index.php;
fastcgi_param REQUEST_METHOD $request_method;
fastcgi_param QUERY_STRING $query_string;
"""


def prepare_php(place):
    place.start_helper("nginx", ["nginx", "-p", place.dir, "-c", place.dir / "nginx.conf"])
    wait_listening(place.client.ns, place.program.tls)


def php(query="", body=BODY):
    def ask(place, address):
        family = 6 if ":" in address else 4
        got = place.curl(f"http://127.0.0.1:{place.program.tls}/{family}/{query}")
        assert got.strip() == body, got

    return ask


def nats(place, address):
    with connect(place.client, address, place.program.port) as one:
        one.sendall(b"CONNECT {}\r\nSUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n")
        got = b""
        while b"PONG\r\n" not in got:
            part = one.recv(4096)
            assert part, got
            got += part
        assert b"MSG a 1 5\r\nhello\r\n" in got, got


def gunicorn(*words):
    return (
        sys.executable,
        "-m",
        "gunicorn",
        "--preload",
        "-w",
        "2",
        "-b",
        "[::]:{port}",
        "--chdir",
        "{dir}",
        *words,
        "web:app",
    )


PROGRAMS = (
    Program(
        "gunicorn",
        7400,
        gunicorn("--pid", "{dir}/pid"),
        {
            "serves": serves(http()),
            "proxies": proxies(PROXIED),
            "fork": workers(http()),
            "reload": reload(quick(), signal.SIGHUP, replaced),
        },
        files={"web.py": GUNICORN},
        workers=2,
    ),
    Program(
        "gunicorn, threads",
        7410,
        gunicorn("--threads", "4", "--certfile", "{cert}", "--keyfile", "{key}"),
        {
            "TLS": serves(secure()),
            "threads": threads(secure(), 3),
            "fork": workers(secure()),
        },
        files={"web.py": GUNICORN},
        workers=2,
        row="gunicorn",
    ),
    Program(
        "asyncio",
        7420,
        (sys.executable, "{dir}/serve.py"),
        {"serves": serves(http()), "proxies": proxies(PROXIED), "TLS": serves(https())},
        files={"serve.py": UVLOOP.replace("RUN", "asyncio.run(main())").replace(", uvloop", "")},
    ),
    Program(
        "uvloop",
        7430,
        (sys.executable, "{dir}/serve.py"),
        {"serves": serves(http()), "proxies": proxies(PROXIED), "TLS": serves(https())},
        files={"serve.py": UVLOOP.replace("RUN", "uvloop.run(main())")},
    ),
    Program(
        "node",
        7440,
        ("node", "{dir}/serve.js"),
        {"serves": serves(http()), "proxies": proxies(PROXIED), "TLS": serves(https())},
        files={"serve.js": NODE},
    ),
    Program(
        "node cluster",
        7450,
        ("node", "{dir}/serve.js", "cluster"),
        {"serves": serves(http()), "TLS": serves(https()), "fork": children(http(), held())},
        files={"serve.js": NODE},
    ),
    Program(
        "Java",
        7460,
        ("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "{dir}/Serve.java"),
        {
            "serves": serves(http()),
            "proxies": proxies(PROXIED),
            "TLS": serves(https()),
            "threads": threads(http(), 10),
        },
        files={"Serve.java": JAVA},
        prepare=prepare_java,
    ),
    Program(
        "puma",
        7470,
        ("puma", "-C", "{dir}/puma.rb", "{dir}/config.ru"),
        {
            "serves": serves(http()),
            "proxies": proxies(PROXIED),
            "TLS": serves(https()),
            "threads": threads(http(), 6),
            "fork": workers(http()),
            "reload": reload(quick(), signal.SIGUSR1, replaced, loses=True),
        },
        notes={
            "reload": "gap: a worker that ends closes some connections unanswered, on Linux too"
        },
        files={"config.ru": PUMA, "puma.rb": PUMA_CONF},
        workers=2,
    ),
    Program(
        "php-fpm",
        7480,
        ("php-fpm8.2", "-F", "-y", "{dir}/conf"),
        {
            "serves": serves(php()),
            "proxies": proxies(php("?proxied=1", "client")),
            "fork": workers(php(), clients=4),
            "reload": reload(php(), signal.SIGUSR2, replaced),
        },
        files={"conf": PHP_FPM, "index.php": PHP, "nginx.conf": PHP_NGINX, "conf-fastcgi": FASTCGI},
        prepare=prepare_php,
        workers=4,
    ),
    Program(
        "nats-server",
        7490,
        ("nats-server", "-a", "0.0.0.0", "-p", "{port}"),
        {"serves": left_to_linux(nats)},
        notes={"serves": "Linux: programs in Go make system calls without the C library"},
        families=(4,),
        starts=0,
    ),
)
