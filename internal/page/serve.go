// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/internal/localhost"
)

//go:embed assets
var assets embed.FS

// scripts are the page's, in this order one script.
var scripts = []string{
	"base.js", "charts.js", "flames.js", "live.js", "summary.js", "time.js", "operations.js", "requests.js", "launches.js",
	"collectives.js", "profile.js", "ranks.js", "modules.js", "criticalpath.js", "goodput.js",
	"main.js",
}

const (
	// refresh is how often a browser is notified of new data.
	refresh = time.Second
	// maxListeners is how many browsers are notified at a time; others poll.
	maxListeners = 64
	// maxAnswers is how many states are written at a time, each of at most about a megabyte.
	maxAnswers = 64
	// patience is the timeout of a write to a browser that does not read.
	patience = 30 * time.Second
)

// Mark is near the beginning of every report.
const Mark = "<!-- otelgpu -->"

// policy lets the page run its own script and style and connect to its own server, and nothing
// else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page of a model. traceURL, if not empty, is a template with {traceID} that
// clicks lead to.
//
//	GET /             the page
//	GET /api/state    State as JSON; ?range=<seconds> from 10 to 600; ?from=<unix ms>&to=<unix ms> for a part of it;
//	                  ?service=<name> for the operations, steps and requests of one service; ?have=<update> for
//	                  what has changed since a State that was received for the same query
//	GET /api/trace    the spans of a trace that are kept, as JSON; ?id=<trace ID>
//	GET /report.html  the same as one HTML file
//	GET /api/flames   the tree of a flame graph as JSON; ?window=, ?from=&to=, ?service=, ?version=
//	GET /pprof        the same as pprof; ?type=gpu_time, gpu_energy or gpu_idle is what viewers show first
//	GET /api/events   server-sent events: "state" whenever something new is there, at most once a second; 64 listeners
//
// Requests to a loopback address are answered for localhost, addresses and the given hosts only
// (see package localhost).
func Handler(m *Model, traceURL string, hosts ...string) http.Handler {
	mux, names := http.NewServeMux(), localhost.NewHosts(hosts...)
	for path, asset := range map[string]struct {
		content []byte
		kind    string
	}{
		"GET /{$}":     {read("index.html"), "text/html; charset=utf-8"},
		"GET /app.js":  {script(), "text/javascript; charset=utf-8"},
		"GET /app.css": {read("app.css"), "text/css; charset=utf-8"},
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", asset.kind)
			write(w, r, asset.content)
		})
	}
	host, _ := os.Hostname() // it distinguishes pages
	sent := &updates{seed: maphash.MakeSeed()}
	var one sync.Mutex // one at a time queries the model, so that many browsers do not delay spans
	answer := func(w http.ResponseWriter, r *http.Request, saved bool, kind string,
		form func(*State, url.Values) ([]byte, error),
	) {
		q, err := query(r.URL.Query())
		q.Saved = saved
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		one.Lock()
		s := m.State(q)
		s.TraceURL, s.Host = traceURL, host
		b, err := form(s, r.URL.Query())
		one.Unlock()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		write(w, r, b)
	}
	mux.HandleFunc("GET /api/state", atMost(maxAnswers, func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, false, "application/json", sent.answer)
	}))
	mux.HandleFunc("GET /report.html", atMost(maxAnswers, func(w http.ResponseWriter, r *http.Request) {
		// The policy of the header forbids the scripts in the file, so browsers must save it
		// instead of showing it.
		w.Header().Set("Content-Disposition", `attachment; filename="otelgpu.html"`)
		answer(w, r, true, "text/html; charset=utf-8", func(s *State, _ url.Values) ([]byte, error) {
			var b bytes.Buffer
			err := Report(&b, s)
			return b.Bytes(), err
		})
	}))
	handleProfiles(mux, m)
	handleTraces(mux, m)
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /api/events", atMost(maxListeners, func(w http.ResponseWriter, r *http.Request) {
		events(m, w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if !names.Allow(r) {
			http.Error(w, fmt.Sprintf("this page is not served as %q (localhost, addresses and `hosts` are)", r.Host),
				http.StatusForbidden)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
		mux.ServeHTTP(w, r)
	})
}

// atMost serves n requests at a time, and tells further clients to retry.
func atMost(n int64, f http.HandlerFunc) http.HandlerFunc {
	var now atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		defer now.Add(-1)
		if now.Add(1) > n {
			w.Header().Set("Retry-After", "5")
			http.Error(w, fmt.Sprintf("%d browsers are served already", n), http.StatusServiceUnavailable)
			return
		}
		f(w, r)
	}
}

// encode returns a state as JSON. Sums of numbers from the wire may overflow (1e308 twice): such
// values are omitted.
func encode(s *State) ([]byte, error) {
	b, err := json.Marshal(s) // escapes <, > and &, so that no text can end the script that contains it
	if none := new(json.UnsupportedValueError); errors.As(err, &none) {
		finite(reflect.ValueOf(s).Elem())
		b, err = json.Marshal(s)
	}
	return b, err
}

// finite sets NaN and infinities within v to 0.
func finite(v reflect.Value) {
	switch v.Kind() {
	case reflect.Float64:
		if x := v.Float(); math.IsNaN(x) || math.IsInf(x, 0) {
			v.SetFloat(0)
		}
	case reflect.Slice:
		for i := range v.Len() {
			finite(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			finite(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				finite(v.Field(i))
			}
		}
	}
}

// write sends a body, compressed for clients that accept it.
func write(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(body)
	_ = z.Close()
}

// query parses the query of a State.
func query(v url.Values) (q Query, err error) {
	if text := v.Get("range"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 10 || seconds > keptSeconds {
			return q, fmt.Errorf("range must be from 10 to %d seconds, found %q", keptSeconds, text)
		}
		q.Range = time.Duration(seconds) * time.Second
	}
	q.Service = v.Get("service")
	if !v.Has("from") && !v.Has("to") {
		return q, nil
	}
	from, err := strconv.ParseInt(v.Get("from"), 10, 64)
	to, err2 := strconv.ParseInt(v.Get("to"), 10, 64)
	if err != nil || err2 != nil || from <= 0 || to <= from {
		return q, fmt.Errorf("from and to must be unix milliseconds, from before to, found %q and %q", v.Get("from"),
			v.Get("to"))
	}
	q.From, q.To = time.UnixMilli(from), time.UnixMilli(to)
	return q, nil
}

func events(m *Model, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	last, quiet := uint64(0), 0
	for {
		// A write to a browser that does not read ends with the connection.
		_ = out.SetWriteDeadline(time.Now().Add(patience))
		var err error
		if g := m.Generation(); g != last || quiet == 0 {
			last, quiet = g, 0
			_, err = fmt.Fprintf(w, "event: state\ndata: %d\n\n", g)
		} else if quiet%15 == 0 {
			_, err = io.WriteString(w, ": still here\n\n")
		}
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			return
		}
		quiet++
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

func read(name string) []byte {
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		return nil // the tree is fixed at build time, and a test reads every file of it
	}
	return b
}

func script() []byte {
	var all [][]byte
	for _, name := range scripts {
		all = append(all, read(name))
	}
	return bytes.Join(all, []byte("\n"))
}

// Report writes a state as one self-contained HTML file.
func Report(w io.Writer, s *State) error {
	data, err := encode(s)
	if err != nil {
		return err
	}
	script, style := string(script()), string(read("app.css"))
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	meta := fmt.Sprintf(
		`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src %s; style-src %s; `+
			`base-uri 'none'; form-action 'none'">`, hash(script), hash(style))
	page := string(read("index.html"))
	for _, r := range [][2]string{
		{`<link rel="stylesheet" href="app.css">`, "<style>" + style + "</style>"},
		{`<script src="app.js" defer></script>`, ""},
		{`<meta charset="utf-8">`, `<meta charset="utf-8">` + meta},
		{`</body>`, `<script type="application/json" id="state">` + string(data) + `</script><script>` + script +
			`</script></body>`},
	} {
		if !strings.Contains(page, r[0]) {
			return fmt.Errorf("the page's frame lacks %s", r[0])
		}
		page = strings.Replace(page, r[0], r[1], 1)
	}
	_, err = io.WriteString(w, page)
	return err
}

// WriteReport writes a report to a file in a folder, which is created if missing, and returns its
// path.
func WriteReport(folder, name string, s *State) (path string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("cannot create the folder of the page: %w", err)
	}
	path = filepath.Join(folder, name)
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("cannot write the page: %w", err)
	}
	if err := errors.Join(Report(f, s), f.Close()); err != nil {
		return "", fmt.Errorf("cannot write the page %q: %w", path, err)
	}
	return path, nil
}
