package main

// This file holds the defaulting and the validating webhook.

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"code.cloudfoundry.org/eirinix"
	opsv1 "code.cloudfoundry.org/eirinix/examples/playbook/api/v1"
)

var abstractPath = field.NewPath("spec", "abstract")

// fillIn sets the defaults.
func fillIn(_ context.Context, _ *eirinix.Call, p *opsv1.Playbook) error {
	if p.Spec.Abstract == "" {
		p.Spec.Abstract = "nobody has said yet what this is for"
	}
	return nil
}

func create(_ context.Context, _ *eirinix.Call, p *opsv1.Playbook) error {
	return eirinix.Invalid(checkAbstract(p))
}

func update(_ context.Context, _ *eirinix.Call, oldObj, newObj *opsv1.Playbook) error {
	faults := checkAbstract(newObj)
	if oldObj.Status.Progress > 0 && oldObj.Spec.Abstract != newObj.Spec.Abstract {
		faults = append(faults, field.Forbidden(abstractPath, "stays as it is once the playbook has begun"))
	}
	return eirinix.Invalid(faults)
}

// remove receives the object that is about to be deleted, because the API server sends no new object on DELETE.
func remove(_ context.Context, _ *eirinix.Call, p *opsv1.Playbook) error {
	if p.Status.Progress > 0 && p.Status.Progress < 100 {
		return eirinix.Deny("playbook %q is at %d percent; let it come to an end", p.Name, p.Status.Progress)
	}
	return nil
}

func checkAbstract(p *opsv1.Playbook) (faults field.ErrorList) {
	if strings.Contains(strings.ToLower(p.Spec.Abstract), "yellow") {
		faults = append(faults, field.Invalid(abstractPath, p.Spec.Abstract, "must not contain \"yellow\""))
	}
	return faults
}
