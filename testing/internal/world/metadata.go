package world

// This file answers watches of metadata alone, which are those of objects with the rest left out.

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// metadataOnly writes the metadata alone of each event of a watch.
type metadataOnly struct {
	http.ResponseWriter
	begun bytes.Buffer // an event that is not complete
}

// asMetadata returns where the answer to a request is written to.
func asMetadata(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata;") && strings.Contains(r.URL.RawQuery, "watch=true") {
		return &metadataOnly{ResponseWriter: w}
	}
	return w
}

// Write passes on the events that are complete.
func (m *metadataOnly) Write(p []byte) (int, error) {
	m.begun.Write(p)
	for bytes.Contains(m.begun.Bytes(), []byte("\n")) {
		text, _ := m.begun.ReadBytes('\n')
		var event struct {
			Type   string         `json:"type"`
			Object map[string]any `json:"object"`
		}
		if json.Unmarshal(text, &event) == nil && event.Object["kind"] != "Status" {
			event.Object = map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": event.Object["metadata"]}
			if whole, err := json.Marshal(event); err == nil {
				text = append(whole, '\n')
			}
		}
		if _, err := m.ResponseWriter.Write(text); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush sends all that was written.
func (m *metadataOnly) Flush() {
	if f, ok := m.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
