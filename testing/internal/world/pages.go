package world

// This file is the pages of lists: API servers answer lists with a limit in parts, forget where they were, and break off.

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// usualPage is the limit of all lists but those of audits in worlds. Nothing here is that long.
const usualPage = 500

// pages answers a list with a small limit. It reports whether it did.
func (s *apiServer) pages(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit >= usualPage || r.Method != http.MethodGet || q.Get("watch") != "" {
		return false
	}
	whole := r.Clone(r.Context())
	given := q.Get("continue")
	q.Del("limit")
	q.Del("continue")
	whole.URL = &url.URL{Path: r.URL.Path, RawQuery: q.Encode()}
	got := httptest.NewRecorder()
	s.server.ServeHTTP(got, whole)
	var list map[string]any
	if got.Code != http.StatusOK || json.Unmarshal(got.Body.Bytes(), &list) != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes())
		return true
	}
	rng := s.w.stream(s.name+" pages", int(s.w.listed.Add(1)))
	from, _ := strconv.Atoi(strings.TrimPrefix(given, continued))
	if strings.HasPrefix(given, continued) && from > 0 && rng.IntN(6) == 0 {
		status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "the token has expired"}
		if status.Continue = given; rng.IntN(12) == 0 { // the list cannot go on
			s.w.forgot.Store(true)
			status.Continue = ""
		}
		writeJSON(w, http.StatusGone, status)
		return true
	}
	items, _ := list["items"].([]any)
	to := min(len(items), from+limit)
	metadata, _ := list["metadata"].(map[string]any)
	if to < len(items) {
		metadata["continue"], metadata["remainingItemCount"] = continued+strconv.Itoa(to), len(items)-to
	}
	list["items"] = items[min(from, to):to]
	text, _ := json.Marshal(list) // it was JSON
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if rng.IntN(8) == 0 { // it breaks off
		text = text[:len(text)*(1+rng.IntN(3))/4]
	}
	_, _ = w.Write(text)
	return true
}

// reportGroup is in the paths of reports.
const reportGroup = "/wgpolicyk8s.io/"

// continued begins a token, before the number of objects that were listed.
const continued = "from-"
