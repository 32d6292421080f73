package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// faultyProxy is the program faultyproxy FAULTS COMMAND ARG…: it runs a load
// generator, and stands between it and the server that its --url names. FAULTS is
// "3=hold,5=close": what to do to which request, counted from 1.
//
//	hold    gives the answer when all of it is there, as a buffering proxy does
//	resend  sends the request twice and gives the second answer
//	close   closes the connection instead of an answer; the server sees nothing
//	rename  leaves the request's id out
//	cut     ends the answer after its first content, as if that were all of it
//	think   says that the text is reasoning
//
// With entries=N the load generator has only N prompts.
func faultyProxy() {
	code, err := runBehindProxy(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "faultyproxy:", err)
		code = 1
	}
	os.Exit(code)
}

func runBehindProxy(faults string, command []string) (code int, err error) {
	value := func(flag string) *string { return &command[slices.Index(command, flag)+1] }
	url := value("--url")
	p := &proxy{upstream: *url, faults: map[int64]string{}}
	for _, fault := range strings.Split(faults, ",") {
		which, what, _ := strings.Cut(fault, "=")
		if which == "entries" {
			*value("--num-dataset-entries") = what
			continue
		}
		n, err := strconv.ParseInt(which, 10, 64)
		if err != nil {
			return 0, err
		}
		p.faults[n] = what
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	*url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: p}
	go server.Serve(listener)
	defer server.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

type proxy struct {
	upstream string
	faults   map[int64]string
	posts    atomic.Int64
}

// The connections to the server are new ones, so that nothing of what the server
// sees is this client's doing.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := ""
	if r.Method == http.MethodPost {
		fault = p.faults[p.posts.Add(1)]
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || fault == "close" {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	send := func() *http.Response {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, p.upstream+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		req.Header = r.Header.Clone()
		if fault == "rename" {
			req.Header.Del("X-Request-ID")
		}
		resp, err := direct.Do(req)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		return resp
	}
	if fault == "resend" {
		first := send()
		io.Copy(io.Discard, first.Body)
		first.Body.Close()
	}
	resp := send()
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	switch fault {
	case "hold", "cut", "think":
		answer, _ := io.ReadAll(resp.Body)
		w.Write(spoil(fault, answer))
	default:
		relay(w, resp.Body)
	}
}

func spoil(fault string, answer []byte) []byte {
	switch fault {
	case "cut":
		const events = 2 // the role and the first content
		parts := bytes.SplitAfterN(answer, []byte("\n\n"), events+1)
		return bytes.Join(parts[:min(events, len(parts))], nil)
	case "think":
		return bytes.ReplaceAll(answer, []byte(`"content":`), []byte(`"reasoning_content":`))
	}
	return answer
}

// relay passes on what comes as it comes.
func relay(w http.ResponseWriter, from io.Reader) {
	flush := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.Write(buf[:n])
		flush.Flush()
		if err != nil {
			return
		}
	}
}
