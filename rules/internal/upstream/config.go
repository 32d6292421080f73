package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Config says which engine requests are forwarded to, and how. An engine is
// either started, with Command, or reached, at URL.
type Config struct {
	// Adapter is the name of the adapter that knows the engine's wire.
	Adapter string `json:"adapter"`
	// URL is the base URL of a server that runs already, such as
	// http://127.0.0.1:9000.
	URL string `json:"url,omitempty"`
	// Model is what the model is called there.
	Model string `json:"model"`
	// Lanes is how many requests are forwarded at the same time; 0 means 1.
	Lanes int `json:"lanes,omitempty"`
	// PromptCache says whether the engine may reuse the work on an earlier prompt.
	// Only adapters whose engine can be told know it.
	PromptCache bool `json:"prompt_cache,omitempty"`

	// Command starts the engine. {port} in it is replaced by a free port, where the
	// engine is to listen on 127.0.0.1. Its output goes to the gateway's log.
	Command []string `json:"command,omitempty"`
	// Env is added to the gateway's environment, as NAME=value.
	Env []string `json:"env,omitempty"`
	// CPUs limits the engine to these CPUs; empty means no limit.
	CPUs []int `json:"cpus,omitempty"`

	// The API key of a server at URL is in a file, or in a variable of the gateway's
	// environment. It is in no record and no log.
	KeyFile     string `json:"api_key_file,omitempty"`
	KeyVariable string `json:"api_key_variable,omitempty"`
}

// portPlace is what stands for the port in a command.
const portPlace = "{port}"

// maxLanes is more than one process could serve.
const maxLanes = 1 << 14

// check returns all that is wrong.
func (c *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	adapter, known := Find(c.Adapter)
	if !known {
		bad("adapter: there is none named %q; there are %s", c.Adapter, quoted(Names()))
	}
	if c.Model == "" {
		bad("model: the engine's name of the model is needed")
	}
	if c.Lanes < 0 || c.Lanes > maxLanes {
		bad("lanes: %d is not between 1 and %d", c.Lanes, maxLanes)
	}
	if known && c.PromptCache && adapter.CacheMember == "" {
		bad("prompt_cache: adapter %q cannot tell its engine", c.Adapter)
	}
	switch {
	case (c.URL == "") == (len(c.Command) == 0):
		bad("either url or command is needed: a server that runs already, or how to start one")
	case c.URL != "":
		if err := CheckURL(c.URL); err != nil {
			bad("url: %w", err)
		}
		if len(c.Env) > 0 || len(c.CPUs) > 0 {
			bad("env and cpus belong to command: nothing is started for a url")
		}
		if c.KeyFile != "" && c.KeyVariable != "" {
			bad("api_key_file and api_key_variable: give one of them")
		}
	default:
		if c.Command[0] == "" {
			bad("command: the program's name is empty")
		}
		if !slices.ContainsFunc(c.Command, func(arg string) bool { return strings.Contains(arg, portPlace) }) {
			bad("command: %s must stand where the engine is told its port", portPlace)
		}
		for _, variable := range c.Env {
			if name, _, ok := strings.Cut(variable, "="); !ok || name == "" {
				bad("env: %q is not NAME=value", variable)
			}
		}
		if c.KeyFile != "" || c.KeyVariable != "" {
			bad("api_key_file and api_key_variable belong to url: an engine that is started gets a key of its own")
		}
	}
	return errors.Join(errs...)
}

// key reads the API key; "" means that none is configured.
func (c *Config) key() (string, error) {
	from, key := "", ""
	switch {
	case c.KeyFile != "":
		data, err := os.ReadFile(c.KeyFile)
		if err != nil {
			return "", fmt.Errorf("api_key_file: %w", err)
		}
		from, key = "api_key_file: "+c.KeyFile, strings.TrimSpace(string(data))
	case c.KeyVariable != "":
		from, key = "api_key_variable: "+c.KeyVariable, os.Getenv(c.KeyVariable)
	default:
		return "", nil
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s holds no key: one line of printable ASCII without spaces is needed", from)
	}
	return key, nil
}

// CheckURL says what is wrong with a base URL.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it must be the base URL of a server, such as http://127.0.0.1:9000")
	case u.User != nil:
		return errors.New("it must not hold credentials")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("it must not have a query or a fragment")
	case strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1"):
		return errors.New("leave out /v1: it is the server's base URL")
	}
	return nil
}

func quoted(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = strconv.Quote(name)
	}
	return strings.Join(list, ", ")
}
