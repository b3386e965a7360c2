package convert_test

// This file answers any bytes.

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

// FuzzAnswer answers any bytes, as one review and as the annotation and the spec of an object. The uid is always that of
// the request, and each object has its answer.
func FuzzAnswer(f *testing.F) {
	for _, body := range [][]byte{
		review("v1"), review("v1", object("v1alpha1", "", `"schedule":"5 # x","owner":{"team":"t"}`)), review("v1alpha1", "null", "7"),
		review("v1beta1", object("v1", `,"annotations":{"`+convert.Prefix+`a":"b.c.{\"version\":\"v1beta1\"}"}`, `"schedule":{"minute":"5"}`)),
		review("v1", object("v1alpha1", `,"labels":{"a":"b"}`, `"schedule":"1","rules":[{"match":"a","note":"n"}],"steps":[{"name":"a","local":true},{"name":"b"}]`)),
		[]byte(`{"v1alpha1":[{"path":["spec","steps",["a"]],"value":{"name":"a","local":true},"after":"b"}]}`),
		[]byte(`{"v1alpha1":[{"path":["spec","rules"],"value":{"match":"b","note":"n"},"base":{"match":"b"},"item":true}]}`),
		[]byte(`"schedule":"5 4","x":{"y":[1e3,-0]},"steps":[{"name":"a","x":1}]`),
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			t.Skip("long texts only repeat themselves")
		}
		note, err := json.Marshal(string(text))
		if err != nil {
			t.Fatal(err)
		}
		noted := object("v1", `,"annotations":{"`+convert.Prefix+`a":`+string(note)+`}`, `"schedule":{"minute":"5"},"suspend":false,"steps":[{"name":"b"}],"rules":[{"match":"b"}]`)
		for _, body := range [][]byte{
			text, review("v1", object("v1alpha1", "", string(text))), review("v1alpha1", noted), review("v1beta1", noted),
			review("v1", strings.Replace(object("v1beta1", "", string(text)), `"spec"`, `"x":[`+string(text)+`],"spec"`, 1)),
		} {
			checkAnswer(t, body)
		}
	})
}

func checkAnswer(t *testing.T, body []byte) {
	answer, err := cronJobs().Answer(context.Background(), body, nil)
	if err != nil {
		if answer != nil {
			t.Fatalf("%q: an answer and an error", body)
		}
		return
	}
	var asked struct {
		Request struct {
			UID     string            `json:"uid"`
			Desired string            `json:"desiredAPIVersion"`
			Objects []json.RawMessage `json:"objects"`
		} `json:"request"`
	}
	var got struct {
		Response struct {
			UID     string            `json:"uid"`
			Objects []json.RawMessage `json:"convertedObjects"`
			Result  struct {
				Status, Message string
			} `json:"result"`
		} `json:"response"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &asked); err != nil {
		t.Fatalf("%q is no review, but is answered: %v", body, err)
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatalf("%q is answered with %q: %v", body, answer, err)
	}
	switch r := got.Response; {
	case r.UID != asked.Request.UID:
		t.Fatalf("%q has the uid %q, and its answer %q", body, asked.Request.UID, r.UID)
	case r.Result.Status == "Failure":
		if r.Result.Message == "" || len(r.Objects) > 0 {
			t.Fatalf("%q fails with %q", body, answer)
		}
	case len(r.Objects) != len(asked.Request.Objects):
		t.Fatalf("%q holds %d objects, and its answer %d", body, len(asked.Request.Objects), len(r.Objects))
	default:
		for _, raw := range r.Objects {
			var o struct {
				APIVersion string `json:"apiVersion"`
			}
			if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil || o.APIVersion != asked.Request.Desired {
				t.Fatalf("%q is answered with %q: %v", body, answer, err)
			}
		}
	}
}
