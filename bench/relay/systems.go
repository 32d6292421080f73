package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"assay/engine/supervise"
)

// system is one way from the engine to the client.
type system struct {
	name    string
	addr    string
	process *supervise.Process // nil for direct
	// native: the engines are the system's own workers, its children.
	native  bool
	records string // the gateway's, if it is one
	missing string // why it does not run
}

// relay lists the processes that stand between engine and client.
func (s *system) relay() []int {
	switch {
	case s.process == nil:
		return nil
	case s.native:
		return []int{s.process.Pid()}
	}
	return tree(s.process.Pid())
}

func (s *system) stop() error {
	if s.process == nil {
		return nil
	}
	return s.process.Stop(5 * time.Second)
}

// names are the systems in the order of the tables.
var names = []string{"direct", "nginx", "haproxy", "go-reverseproxy", "assay-upstream", "assay-native"}

// lab starts systems; dir is for their files.
type lab struct {
	dir   string
	assay string
	self  string // this program
}

// start starts a system for so many streams in front of the engine. One that
// cannot run here says why.
func (l *lab) start(ctx context.Context, name string, engine string, streams int) *system {
	s := &system{name: name}
	var err error
	switch name {
	case "direct":
		s.addr = engine
	case "nginx":
		err = l.startNginx(ctx, s, engine, streams)
	case "haproxy":
		err = l.startHAProxy(ctx, s, engine)
	case "go-reverseproxy":
		s.process, s.addr, err = l.spawn(ctx, name, []string{l.self, "proxy", engine}, "")
	case "assay-upstream":
		err = l.startGateway(ctx, s, streams, map[string]any{
			"upstream": map[string]any{"adapter": "openai", "url": "http://" + engine, "model": model, "lanes": streams}})
	case "assay-native":
		s.native = true
		err = l.startGateway(ctx, s, streams, map[string]any{
			"workers": []any{map[string]any{"command": []string{l.self, "worker"}, "env": []string{"GOMAXPROCS=1"}, "count": streams}}})
	default:
		err = fmt.Errorf("there is no system %q, only %s", name, strings.Join(names, ", "))
	}
	if err != nil {
		s.missing = err.Error()
		if stopErr := s.stop(); stopErr != nil {
			s.missing += "; " + stopErr.Error()
		}
	}
	return s
}

// spawn starts a program. With addr "" the program takes a free port and prints
// {"port": N}; otherwise spawn waits until the address answers.
func (l *lab) spawn(ctx context.Context, name string, argv []string, addr string) (*supervise.Process, string, error) {
	path := filepath.Join(l.dir, name+".log")
	log, err := os.Create(path)
	if err != nil {
		return nil, "", err
	}
	defer log.Close()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer ours.Close()
	p, err := supervise.Start(ctx, supervise.Spec{Path: argv[0], Args: argv[1:], Stdout: theirs, Stderr: log})
	theirs.Close()
	if err != nil {
		return nil, "", err
	}
	if addr == "" {
		var line struct{ Port int }
		if err = json.NewDecoder(ours).Decode(&line); err == nil {
			return p, fmt.Sprintf("127.0.0.1:%d", line.Port), nil
		}
	} else if err = await(ctx, p, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}); err == nil {
		return p, addr, nil
	}
	tail, _ := supervise.Tail(path, 3)
	return p, "", fmt.Errorf("%s did not start: %w: %s", name, err, strings.TrimSpace(tail))
}

// await waits until the condition holds, a minute at most.
func await(ctx context.Context, p *supervise.Process, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Done():
			return fmt.Errorf("it ended: %w", p.Wait())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// freeAddr is for programs that must be told their port.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// find looks for a server where Debian puts it, too.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	if path, err := exec.LookPath("/usr/sbin/" + program); err == nil {
		return path, nil
	}
	install := map[string]string{"nginx": "nginx-light", "haproxy": "haproxy"}[program]
	return "", fmt.Errorf("not installed: apt-get install %s", install)
}

const nginxConf = `worker_processes 2;
daemon off;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx-error.log;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 1000000000;
  client_body_buffer_size 64k;
  client_body_temp_path %[1]s/nginx-body;
  proxy_temp_path %[1]s/nginx-proxy;
  fastcgi_temp_path %[1]s/nginx-fastcgi;
  uwsgi_temp_path %[1]s/nginx-uwsgi;
  scgi_temp_path %[1]s/nginx-scgi;
  upstream engine {
    server %[2]s;
    keepalive %[4]d;
    keepalive_requests 1000000000;
  }
  server {
    listen %[3]s backlog=1024;
    location / {
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
}
`

func (l *lab) startNginx(ctx context.Context, s *system, engine string, streams int) error {
	program, err := find("nginx")
	if err != nil {
		return err
	}
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	conf := filepath.Join(l.dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, l.dir, engine, addr, streams), 0o644); err != nil {
		return err
	}
	s.process, s.addr, err = l.spawn(ctx, s.name, []string{program, "-e", filepath.Join(l.dir, "nginx-error.log"), "-p", l.dir, "-c", conf}, addr)
	return err
}

const haproxyConf = `global
  nbthread 2
  maxconn 4096
defaults
  mode http
  option http-keep-alive
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend clients
  bind %s
  default_backend engine
backend engine
  server engine %s
`

func (l *lab) startHAProxy(ctx context.Context, s *system, engine string) error {
	program, err := find("haproxy")
	if err != nil {
		return err
	}
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	conf := filepath.Join(l.dir, "haproxy.cfg")
	if err := os.WriteFile(conf, fmt.Appendf(nil, haproxyConf, addr, engine), 0o644); err != nil {
		return err
	}
	s.process, s.addr, err = l.spawn(ctx, s.name, []string{program, "-db", "-f", conf}, addr)
	return err
}

// serveProxy is the role of Go's own relay.
func serveProxy(engine string) error {
	to := &url.URL{Scheme: "http", Host: engine}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.DisableCompression = 0, 1024, true
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		Transport:     transport,
	}
	return listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this an answer that comes at once is cut now and then
		// (golang/go#40747). nginx reads a body before it forwards it, too.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
}

// startGateway starts Assay's gateway with one model and waits until all of its
// lanes are in service.
func (l *lab) startGateway(ctx context.Context, s *system, streams int, served map[string]any) error {
	s.records = filepath.Join(l.dir, fmt.Sprintf("%s-%d.jsonl", s.name, streams))
	served["names"] = []string{model}
	config, err := json.Marshal(map[string]any{
		"listen": "127.0.0.1:0", "records": map[string]any{"file": s.records}, "models": []any{served}})
	if err != nil {
		return err
	}
	path := filepath.Join(l.dir, s.name+".json")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return err
	}
	s.process, s.addr, err = l.spawn(ctx, s.name, []string{l.assay, "gateway", "--config", path}, "")
	if err != nil {
		return err
	}
	if err := await(ctx, s.process, func() bool { return inService(s.addr) }); err != nil {
		return fmt.Errorf("the gateway is not ready: %w", err)
	}
	return nil
}

// inService reports whether every lane of a gateway is.
func inService(addr string) bool {
	resp, err := http.Get("http://" + addr + "/health/ready")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK && !bytes.Contains(body.Bytes(), []byte(`"loading"`))
}

// versions says what is compared.
func (l *lab) versions() map[string]string {
	all := map[string]string{"go": runtime.Version()}
	for program, flag := range map[string]string{"nginx": "-v", "haproxy": "-v"} {
		path, err := find(program)
		if err != nil {
			all[program] = err.Error()
			continue
		}
		said, _ := exec.Command(path, flag).CombinedOutput()
		all[program], _, _ = strings.Cut(string(said), "\n")
	}
	all["assay"] = "unknown revision"
	if info, err := buildinfo.ReadFile(l.assay); err == nil {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				all["assay"] = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				all["assay"] += " with changes"
			}
		}
	}
	if program, err := os.ReadFile(l.assay); err == nil {
		all["assay"] += fmt.Sprintf(", program sha256:%x", sha256.Sum256(program))
	}
	return all
}
