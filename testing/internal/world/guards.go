package world

// This file is the guards of writes: what the program shares with others is written only as it was read.

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
)

// guards looks at a write of an object that all replicas share: it carries the resourceVersion that it was decided on, so that it
// replaces nothing that another client has written meanwhile.
func (c *wire) guards(r *http.Request) {
	name := path.Base(r.URL.Path)
	shared := name == definitionName || slices.ContainsFunc(belongings, func(b belonging) bool { return b.name == name })
	if !shared || r.Body == nil || !slices.Contains([]string{http.MethodPut, http.MethodPatch, http.MethodDelete}, r.Method) {
		return
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // it is in memory
	r.Body = io.NopCloser(bytes.NewReader(body))
	var sent struct {
		Metadata, Preconditions struct {
			ResourceVersion string `json:"resourceVersion"`
		}
	}
	if err != nil || json.Unmarshal(body, &sent) != nil {
		return
	}
	if sent.Metadata.ResourceVersion == "" && sent.Preconditions.ResourceVersion == "" {
		c.w.violate("%s writes %s without the resourceVersion that it was decided on: %s %.300s", c.host.name, name, r.Method, body)
	}
}
