package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"assay/engine/layout"
	"assay/engine/upkeep"
)

func (a *app) cacheCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Measure, check and clean the cache",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.cacheStatsCommand(), a.cacheVerifyCommand(), a.cacheGCCommand())
	return cmd
}

func (a *app) cacheStatsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Say how much of what the cache holds",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			cache, err := a.cacheDir()
			if err != nil {
				return err
			}
			stats, err := upkeep.Stats(cmd.Context(), layout.Dir(cache))
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(stats)
			}
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintf(w, "cache\t%s\n", cache)
			for _, u := range stats {
				fmt.Fprintf(w, "%s\t%d %s\t%s\n", u.Kind, u.Count, u.Of, size(u.Bytes))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the figures as JSON")
	return cmd
}

func (a *app) cacheVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Read every blob and record, set aside what is corrupt",
		Long: "Reads every blob and compares it with its digest, and reads every record and looks for all it names. What is corrupt is set aside and counts as missing: " +
			"the next build makes it again. A sample that lost something cannot be made again as it was.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			cache, err := a.cacheDir()
			if err != nil {
				return err
			}
			v, err := upkeep.Verify(cmd.Context(), layout.Dir(cache))
			if err != nil {
				return err
			}
			for _, p := range v.Problems {
				fmt.Fprintln(a.stdout, p)
			}
			fmt.Fprintf(a.stdout, "%s (%s), %s, %s\n", plural(v.Blobs, "blob"), size(v.Bytes), plural(v.Results, "result"), plural(v.Samples, "sample"))
			if len(v.Problems) > 0 {
				return actionError{fmt.Errorf("%s in the cache; what is corrupt was set aside, and a build makes again what can be made again", plural(len(v.Problems), "problem"))}
			}
			return nil
		},
	}
}

func (a *app) cacheGCCommand() *cobra.Command {
	var policy upkeep.Policy
	var older time.Duration
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what nothing refers to any more",
		Long: "Removes results that no checkout remembers and none of the last builds used, blobs that no record names, what killed builds left half written, " +
			"corrupt entries that were set aside, and old logs. Samples and receipts are never removed, nor are Python environments and downloads. " +
			"It waits for builds that use the cache to end.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if policy.Builds < 0 || older < 0 {
				return usageError{fmt.Errorf("--keep-builds and --older-than cannot be negative")}
			}
			cache, err := a.cacheDir()
			if err != nil {
				return err
			}
			policy.Since = time.Now().Add(-older)
			policy.Waiting = func() { fmt.Fprintln(a.stderr, "waiting for builds that use the cache") }
			c, err := upkeep.Collect(cmd.Context(), layout.Dir(cache), policy)
			if err != nil {
				return err
			}
			for _, b := range c.Broken {
				fmt.Fprintln(a.stderr, "warning:", b)
			}
			done := "removed"
			if policy.DryRun {
				done = "would remove"
			}
			fmt.Fprintf(a.stdout, "%s %s, %s, %s and %s: %s\n", done,
				plural(c.Results, "result"), plural(c.Blobs, "blob"), plural(c.Logs, "log"), plural(c.Files, "stale file"), size(c.Bytes))
			if c.Results > 0 {
				fmt.Fprintf(a.stdout, "making the results took %s\n", round(c.Cost))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&policy.DryRun, "dry-run", false, "say what would be removed, and remove nothing")
	cmd.Flags().DurationVar(&older, "older-than", 0, "keep results younger than this, as in 720h")
	cmd.Flags().IntVar(&policy.Builds, "keep-builds", 20, "keep the logs of this many last builds, and the results they used")
	return cmd
}

// size prints bytes for people.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n), -1
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
