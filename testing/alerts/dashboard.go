package main

// This file makes the Grafana dashboard from a list of panels.

import (
	"encoding/json"
	"fmt"
	"os"
)

// panel is a graph of one or more queries.
type panel struct {
	title, about, unit string
	queries            []query
}

type query struct{ expr, legend string }

// row is a headline with its panels, three beside each other.
type row struct {
	title  string
	panels []panel
}

// canary is the step, and the webhook, of the calls of diagnoses.
const canary = "eirinix-canary"

// notCanary leaves out the calls of diagnoses.
const notCanary = `step=~"$step", step!="` + canary + `"`

var rows = []row{
	{"Calls", []panel{
		{
			"Decisions", "What the steps decided, without dry runs.", "reqps",
			[]query{{`sum by (step, decision) (rate(eirinix_admission_decisions_total{` + notCanary + `, decision!~"skipped.*", dry_run="false"}[$__rate_interval]))`, "{{step}} {{decision}}"}},
		},
		{
			"Failures", "Failed: the request was refused. Ignored: it was admitted without the step.", "reqps",
			[]query{
				{`sum by (step, decision) (rate(eirinix_admission_decisions_total{` + notCanary + `, decision=~"failed|ignored", dry_run="false"}[$__rate_interval]))`, "{{step}} {{decision}}"},
				{`sum by (step) (rate(eirinix_admission_panics_total{` + notCanary + `}[$__rate_interval]))`, "{{step}} panics"},
			},
		},
		{
			"Time of a step, 99 of 100 runs", "A run that takes longer than the step's timeout fails.", "s",
			[]query{
				{`histogram_quantile(0.99, sum by (step, le) (rate(eirinix_admission_step_duration_seconds_bucket{` + notCanary + `}[$__rate_interval])))`, "{{step}}"},
				{`min by (step) (eirinix_admission_step_timeout_seconds{` + notCanary + `})`, "{{step}} timeout"},
			},
		},
		{
			"Calls in flight", "Calls beyond the slots wait. Calls beyond the limit are refused.", "short",
			[]query{
				{`eirinix_admission_in_flight_requests`, "{{pod}}"},
				{`max(eirinix_admission_slots)`, "slots of a replica"},
				{`max(eirinix_admission_in_flight_limit)`, "limit of a replica"},
			},
		},
		{
			"Refused requests", "Requests that no step saw, by the HTTP status of the answer.", "reqps",
			[]query{{`sum by (code) (rate(eirinix_admission_refused_requests_total[$__rate_interval]))`, "{{code}}"}},
		},
		{
			"Hanging runs", "Runs of steps that continue after the deadline of their request.", "short",
			[]query{{`sum by (step) (eirinix_admission_left_behind_runs{` + notCanary + `})`, "{{step}}"}},
		},
		{
			"Rules that watch", "What steps in the modes Warn, Audit and Shadow would have done.", "reqps",
			[]query{{`sum by (step, decision) (rate(eirinix_admission_decisions_total{` + notCanary + `, decision=~"would_deny|would_patch|would_fail|dropped", dry_run="false"}[$__rate_interval]))`, "{{step}} {{decision}}"}},
		},
		{
			"Patches", "Size of the JSON patches sent to API servers.", "Bps",
			[]query{{`sum by (webhook) (rate(eirinix_admission_patch_bytes_total{webhook!="` + canary + `"}[$__rate_interval]))`, "{{webhook}}"}},
		},
		{
			"Conversions", "Objects of conversion webhooks.", "ops",
			[]query{{`sum by (crd, result) (rate(eirinix_conversion_objects_total[$__rate_interval]))`, "{{crd}} {{result}}"}},
		},
	}},
	{"Certificates", []panel{
		{
			"Time left", "A serving certificate is renewed two days before its end, a CA at half of its life.", "s",
			[]query{{`min by (secret, role) (eirinix_certificate_expiration_timestamp_seconds{secret=~"$secret"}) - time()`, "{{secret}} {{role}}"}},
		},
		{
			"Rotation", "The phase of the rotation of the CA. The generation counts rotations.", "short",
			[]query{
				{`max by (secret, phase) (eirinix_certificate_phase{secret=~"$secret"})`, "{{secret}} {{phase}}"},
				{`max by (secret) (eirinix_certificate_generation{secret=~"$secret"})`, "{{secret}} generation"},
			},
		},
		{
			"Bundles and passes", "In sync: every caBundle is as it should be. Failing: the last pass over Secret and configurations failed.", "short",
			[]query{
				{`min by (secret) (eirinix_certificate_bundle_in_sync{secret=~"$secret"})`, "{{secret}} in sync"},
				{`max by (secret) (eirinix_certificate_failing{secret=~"$secret"})`, "{{secret}} failing"},
			},
		},
	}},
	{"Registration", []panel{
		{
			"Replicas", "Replicas by the version of the library.", "short",
			[]query{{`count by (secret, version) (eirinix_build_info{secret=~"$secret"})`, "{{secret}} {{version}}"}},
		},
		{
			"Versions, waiting, contested", "More than one version is normal in a rollout alone.", "short",
			[]query{
				{`max by (secret) (eirinix_registration_versions{secret=~"$secret"})`, "{{secret}} versions"},
				{`max by (secret, reason) (eirinix_registration_waiting{secret=~"$secret"})`, "{{secret}} waits for {{reason}}"},
				{`max by (secret, configuration) (eirinix_registration_contested{secret=~"$secret"})`, "{{configuration}} contested"},
			},
		},
		{
			"Objects that steps look at", "Objects in memory, and since when a watch is broken.", "short",
			[]query{
				{`sum by (objects) (eirinix_read_objects)`, "{{objects}}"},
				{`time() - max by (objects) (eirinix_read_interruption_timestamp_seconds > 0)`, "{{objects}} broken for s"},
			},
		},
		{
			"Since the last canary", "Time since an API server called a replica for a diagnosis. A Manager makes one diagnosis when it starts.", "s",
			[]query{{`time() - max by (secret) (eirinix_canary_last_success_timestamp_seconds{secret=~"$secret"} > 0)`, "{{secret}}"}},
		},
	}},
}

// dashboard returns the dashboard in Grafana's format.
func dashboard() ([]byte, error) {
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	var panels []any
	id, y := 0, 0
	for _, r := range rows {
		id++
		panels = append(panels, map[string]any{
			"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []any{},
			"gridPos": map[string]int{"x": 0, "y": y, "w": 24, "h": 1},
		})
		y++
		for i, p := range r.panels {
			id++
			var targets []any
			for n, q := range p.queries {
				targets = append(targets, map[string]any{"refId": string(rune('A' + n)), "datasource": source, "expr": q.expr, "legendFormat": q.legend})
			}
			panels = append(panels, map[string]any{
				"id": id, "type": "timeseries", "title": p.title, "description": p.about, "datasource": source, "targets": targets,
				"gridPos":     map[string]int{"x": i % 3 * 8, "y": y + i/3*8, "w": 8, "h": 8},
				"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit, "min": 0}, "overrides": []any{}},
				"options":     map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom"}, "tooltip": map[string]any{"mode": "multi"}},
			})
		}
		y += (len(r.panels) + 2) / 3 * 8
	}
	values := func(name, label, metric string) map[string]any {
		return map[string]any{
			"name": name, "label": name, "type": "query", "datasource": source, "query": fmt.Sprintf("label_values(%s, %s)", metric, label),
			"refresh": 2, "includeAll": true, "multi": true, "allValue": ".*", "sort": 1,
			"current": map[string]any{"text": "All", "value": "$__all"},
		}
	}
	return json.MarshalIndent(map[string]any{
		"title": "eirinix", "uid": "eirinix", "schemaVersion": 39, "tags": []string{"kubernetes", "admission"},
		"description": "Admission webhooks made with eirinix. The calls of diagnoses, the step eirinix-canary, are left out.",
		"editable":    true, "refresh": "1m", "time": map[string]string{"from": "now-6h", "to": "now"},
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "datasource", "label": "datasource", "type": "datasource", "query": "prometheus"},
			values("step", "step", `eirinix_admission_decisions_total{step!="`+canary+`"}`),
			values("secret", "secret", "eirinix_build_info"),
		}},
		"panels": panels,
	}, "", "  ")
}

func main() {
	text, err := dashboard()
	if err == nil {
		_, err = fmt.Printf("%s\n", text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}
