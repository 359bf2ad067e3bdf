// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

//go:embed assets
var assets embed.FS

// refresh is how often a browser is told that something has come.
const refresh = time.Second

// policy lets the page run its own script and style and talk to its own server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page of a model. traceURL, if not empty, is a template with {traceID} that clicks lead to.
//
//	GET /             the page
//	GET /api/state    State as JSON; ?range=<seconds> from 10 to 600
//	GET /api/events   server-sent events: "state" whenever something new is there, at most once a second
func Handler(m *Model, traceURL string) http.Handler {
	mux := http.NewServeMux()
	for path, asset := range map[string]struct{ file, kind string }{
		"GET /{$}":     {"index.html", "text/html; charset=utf-8"},
		"GET /app.js":  {"app.js", "text/javascript; charset=utf-8"},
		"GET /app.css": {"app.css", "text/css; charset=utf-8"},
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", asset.kind)
			_, _ = w.Write(read(asset.file))
		})
	}
	mux.HandleFunc("GET /api/state", func(w http.ResponseWriter, r *http.Request) {
		span := time.Duration(0)
		if text := r.URL.Query().Get("range"); text != "" {
			seconds, err := strconv.Atoi(text)
			if err != nil || seconds < 10 || seconds > 600 {
				http.Error(w, fmt.Sprintf("range must be from 10 to 600 seconds, found %q", text), http.StatusBadRequest)
				return
			}
			span = time.Duration(seconds) * time.Second
		}
		s := m.State(span)
		s.TraceURL = traceURL
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s)
	})
	mux.HandleFunc("GET /api/events", func(w http.ResponseWriter, r *http.Request) { events(m, w, r) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

func events(m *Model, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	last, quiet := uint64(0), 0
	for {
		// A write to a browser that does not read ends with the connection, not never.
		_ = out.SetWriteDeadline(time.Now().Add(10 * time.Second))
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

// Report writes a state as one HTML file that needs nothing else.
func Report(w io.Writer, s *State) error {
	data, err := json.Marshal(s) // escapes <, > and &, so that no text can end the script that it stands in
	if err != nil {
		return err
	}
	script, style := read("app.js"), read("app.css")
	hash := func(b []byte) string {
		sum := sha256.Sum256(b)
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	meta := fmt.Sprintf(`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src %s; style-src %s">`, hash(script), hash(style))
	page := read("index.html")
	for _, r := range [][2][]byte{
		{[]byte(`<link rel="stylesheet" href="app.css">`), bytes.Join([][]byte{[]byte("<style>"), style, []byte("</style>")}, nil)},
		{[]byte(`<script src="app.js" defer></script>`), nil},
		{[]byte(`<meta charset="utf-8">`), append([]byte(`<meta charset="utf-8">`), meta...)},
		{[]byte(`</body>`), bytes.Join([][]byte{
			[]byte(`<script type="application/json" id="state">`), data, []byte(`</script><script>`), script, []byte(`</script></body>`),
		}, nil)},
	} {
		if !bytes.Contains(page, r[0]) {
			return fmt.Errorf("the page's frame lacks %s", r[0])
		}
		page = bytes.Replace(page, r[0], r[1], 1)
	}
	_, err = w.Write(page)
	return err
}
