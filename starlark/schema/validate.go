package schema

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
)

var identifier = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Validate reports every mistake in the rule's own table. Rules are part of the
// program, so a test calls it; [Rule.Unpack] relies on it.
func (r *Rule) Validate() error {
	var errs []error
	if !identifier.MatchString(r.Name) {
		errs = append(errs, fmt.Errorf("rule %q: the name is not an identifier", r.Name))
	}
	if r.Version < 1 {
		errs = append(errs, fmt.Errorf("rule %s: version %d, want at least 1", r.Name, r.Version))
	}
	seen := map[string]bool{"name": true}
	for i := range r.Attrs {
		a := &r.Attrs[i]
		if seen[a.Name] {
			errs = append(errs, fmt.Errorf("rule %s: attribute %q is declared twice", r.Name, a.Name))
		}
		seen[a.Name] = true
		if err := a.validate(); err != nil {
			errs = append(errs, fmt.Errorf("rule %s: attribute %q: %w", r.Name, a.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (a *Attr) validate() error {
	isString := slices.Contains([]Kind{String, StringList}, a.Kind)
	isNumber := slices.Contains([]Kind{Int, Float}, a.Kind)
	switch {
	case !identifier.MatchString(a.Name):
		return errors.New("the name is not an identifier")
	case !a.Kind.valid():
		return fmt.Errorf("kind %d does not exist", a.Kind)
	case a.Required && a.Default != nil:
		return errors.New("required, so the default is never used")
	case len(a.Rules) > 0 && !a.Kind.IsLabel():
		return fmt.Errorf("kind %s has no accepted rules", a.Kind)
	case (len(a.Values) > 0 || a.Pattern != "") && !isString:
		return fmt.Errorf("kind %s has no allowed values or pattern", a.Kind)
	case (a.Min != nil || a.Max != nil) && !isNumber:
		return fmt.Errorf("kind %s has no range", a.Kind)
	case a.Min != nil && a.Max != nil && *a.Min > *a.Max:
		return fmt.Errorf("the range %v to %v is empty", *a.Min, *a.Max)
	}
	if _, err := regexp.Compile(anchored(a.Pattern)); err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	if a.Default == nil {
		return nil
	}
	if got, want := reflect.TypeOf(a.Default), reflect.TypeOf(kinds[a.Kind].zero); got != want {
		return fmt.Errorf("the default has type %s, want %s", got, want)
	}
	if p := a.check(a.Default); p != nil {
		return fmt.Errorf("the default is not allowed: %s", p.Message)
	}
	return nil
}
