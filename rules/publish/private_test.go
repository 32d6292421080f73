package publish

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// anywhere are the secrets that do not depend on the machine of the test.
func anywhere() []secret {
	return append([]secret{{"an absolute path", absolutePath}}, credentials...)
}

// word has the form of a credential's random part. The tests put keys together
// so that no scanner takes this file for a leak.
const word = "0123456789abcdefABCDEF0123456789"

func TestLeaksAreRefused(t *testing.T) {
	for _, c := range []struct{ line, what string }{
		{"/home/me", "an absolute path"},
		{"cannot open /home/me/model.gguf: no such file", "an absolute path"},
		{"/nix/store/abc", "an absolute path"}, // no list of roots names this
		{"/scratch/run.1/x", "an absolute path"},
		{"/v2/models", "an absolute path"},
		{"PATH=/usr/local/bin:/usr/bin", "an absolute path"},
		{"--cache-dir=/mnt/cache", "an absolute path"},
		{"see (/data/a)", "an absolute path"},
		{"[/data/a]", "an absolute path"},
		{"`/data/a`", "an absolute path"},
		{"**/data/a**", "an absolute path"},
		{"host:/data/a", "an absolute path"},
		{"a,/data/a,b", "an absolute path"},
		{"<td>/data/a</td>", "an absolute path"},
		{"</data/a>", "an absolute path"},
		{"…/data/a", "an absolute path"},
		{"file:///data/a", "an absolute path"},
		{"file://localhost/data/a", "an absolute path"},
		{"http://127.0.0.1:8000/v1/models?file=/data/a", "an absolute path"},
		{"relative/first then /data/a", "an absolute path"},
		{"/v1/models and /data/a", "an absolute path"},
		{"/dev/nullify", "an absolute path"},
		{"/dev/nvme0n1/x", "an absolute path"},
		{"{}/data/a", "an absolute path"},
		{`{"error":"first\n/data/a"}`, "an absolute path"},
		{`{"body":"{\"error\":\"first\\n/data/a\"}"}`, "an absolute path"},
		{`"\/data\/a"`, "an absolute path"},
		{`"\u003c/data/a\u003e"`, "an absolute path"},
		{"/Ünï/cödé", "an absolute path"},
		{"Authorization: Bearer " + word, "a bearer token"},
		{`{"authorization":"bearer ` + word + `=="}`, "a bearer token"},
		{`\nBearer ` + word, "a bearer token"},
		{"sk-" + word, "an access key"},
		{"OPENAI_API_KEY=sk-proj-" + word, "an access key"},
		{"(hf_" + word + ")", "an access key"},
		{`"a\nhf_` + word + `"`, "an access key"},
		{"ghp_" + word, "an access key"},
		{"github_pat_" + word, "an access key"},
		{"glpat-" + word, "an access key"},
		{"nvapi-" + word, "an access key"},
		{"AIza" + word, "an access key"},
		{"AKIA" + "IOSFODNN7EXAMPLE", "an access key"},
		{"xoxb-" + word, "an access key"},
		{"-----BEGIN " + "PRIVATE KEY-----", "a private key"},
		{"-----BEGIN RSA " + "PRIVATE KEY-----", "a private key"},
		{"-----BEGIN OPENSSH " + "PRIVATE KEY-----\\nb3Bl", "a private key"},
		{"-----BEGIN PGP " + "PRIVATE KEY BLOCK-----", "a private key"},
		{"Looking in indexes: https://" + "me:pw@pypi.example/simple", "credentials in a URL"},
		{"https://" + word + "@pypi.example/simple", "credentials in a URL"},
	} {
		err := refusePrivate([]file{{"report.md", "", []byte("first\n" + c.line + "\nlast")}}, anywhere())
		if want := "report.md:2 would publish " + c.what + " ("; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", c.line, err, want)
		}
		if err != nil && strings.Contains(err.Error(), word[4:]) {
			t.Errorf("the error leaks the key: %v", err)
		}
	}
}

func TestWhatIsNoLeak(t *testing.T) {
	for _, line := range []string{
		"",
		"/",
		"/ /a /b",
		"a / b / c",
		"requests/s and tokens/s/GPU, 1/2/3",
		"(last chunk - first chunk) / (n-1)",
		"owner/model/file.gguf, ./a/b, ../a/b, ~/a/b",
		"POST /v1/chat/completions, GET /v1/models, /health/live, /tokenize",
		`"path":"/v1/completions"`,
		"`/health/ready`",
		"http://127.0.0.1:8000/v1/chat/completions http://localhost/a/b http://127.0.0.1:{port}/a/b",
		"https://example.com/a/b?c=d/e#f/g",
		`xmlns="http://www.w3.org/2000/svg"`,
		"command >/dev/null 2>/dev/null.",
		"text/markdown application/vnd.oci.image.manifest.v1+json",
		"//examples/quickstart:report //a/b/... @repo//a/b:c",
		"{env}/bin/aiperf --artifact-dir {out}/client/x --config={config_dir}/a/b",
		"<table><tr><td>1</td></tr></table><br/><br />",
		`<path d="M1 2H3V4"/></g></svg>`,
		`{"html":"\u003ctd\u003e1\u003c/td\u003e\u003c/tr\u003e"}`,
		`{"html":"<b>1</b>\n</td>\n</tr>"}`,
		"&lt;/td&gt;&lt;/tr&gt;",
		"14px/1.5 serif; /* a/b */",
		"data:font/woff2;base64,d09GMgABAAAA+/abc/def+/ghi/jkl",
		"sha256:914ae3e99d7e5b4ee83f32217435726e279f3a664768d24df1a3837e7532d754",
		"Authorization: Bearer {token}, a bearer token, Bearer <redacted>",
		"hf_id, risk-0123456789abcdef0123, sk-short, desk-" + word,
		"-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----",
		"me@example.com, https://example.com/@me, https://example.com?mail=me@example.com",
	} {
		if err := refusePrivate([]file{{"report.md", "", []byte(line)}}, anywhere()); err != nil {
			t.Errorf("%s\ngot %v", line, err)
		}
	}
}

// However a path with its message gets into a published file, it is found.
func TestPathsAreFoundInEveryForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z0-9._-]{1,8}`)
		path := "/" + name.Draw(t, "first") + "/" + name.Draw(t, "second") + "/" + name.Draw(t, "third")
		if public.MatchString(path) {
			t.Skip("public")
		}
		before := rapid.StringMatching(`([a-z]{0,9}[ \n\t"'=:(<>&,;|])?`).Draw(t, "before")
		after := rapid.StringMatching(`([ \n\t"'):<>&,;|][a-z]{0,9})?`).Draw(t, "after")
		text := before + path + after
		once, err := json.Marshal(map[string]string{"error": text})
		if err != nil {
			t.Fatal(err)
		}
		twice, err := json.Marshal(string(once))
		if err != nil {
			t.Fatal(err)
		}
		for form, data := range map[string]string{
			"text": text, "CSV": fmt.Sprintf("1,%q,2", text), "JSON": string(once), "JSON in JSON": string(twice),
			"HTML": "<td>" + html.EscapeString(text) + "</td>",
		} {
			if refusePrivate([]file{{"f", "", []byte(data)}}, anywhere()) == nil {
				t.Fatalf("%s: %s", form, data)
			}
		}
	})
}

// What is particular to this machine is found wherever it stands, and all of it
// is reported.
func TestEverySecretOfTheMachineIsReported(t *testing.T) {
	list := secrets("/somewhere", "/", "")
	files := []file{
		{"a.md", "", []byte("fine\nx/somewhere/below\nsk-" + word)},
		{"b.json", "", []byte("\n\n\"/data/a\"")},
	}
	lines := []string{
		`a.md:2 would publish a folder of this machine ("/somewhere")`,
		`a.md:3 would publish an access key ("sk-…")`,
		`b.json:3 would publish an absolute path ("/data/a")`,
	}
	if host, err := os.Hostname(); err == nil && len(host) > 2 && host != "localhost" {
		files = append(files, file{"c", "", []byte("ran on " + host)})
		lines = append(lines, fmt.Sprintf("c:1 would publish the host name (%q)", host))
	}
	if err := refusePrivate(files, list); err == nil || err.Error() != strings.Join(lines, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(lines, "\n"))
	}
}

func BenchmarkRefusePrivate(b *testing.B) {
	line := []byte(`{"phase":"measured","class":"completed","request_id":"8d06f95c-25a5-465a-9d12-81ef3e9acc14","client":{"status":200,"latency_ns":837686116,"text_sha256":"5ecf8ef48c3acd909c7bdecdcefd64b325ce306314b0d2888007252702c3dcd1"}}` + "\n")
	var data []byte
	for range 1000 {
		data = append(data, line...)
	}
	list := secrets("/somewhere")
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := refusePrivate([]file{{"ledger.jsonl", "", data}}, list); err != nil {
			b.Fatal(err)
		}
	}
}
