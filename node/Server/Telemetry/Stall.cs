using System.Diagnostics;
using System.Globalization;

namespace KvCluster.Node.Telemetry;

/// <summary>A part of the node stalled for longer than it should.</summary>
/// <param name="What">"writer", "timers", "thread pool", or "process", which is the watch itself.</param>
/// <param name="Where">The thread and its work item, for people; may be empty.</param>
/// <param name="Length">The duration.</param>
/// <param name="Reason">One of <see cref="Reasons"/>: the cause of most of that time, as far as is known.</param>
/// <param name="Text">The details, for people.</param>
internal sealed record Stall(string What, string Where, TimeSpan Length, string Reason, string Text)
{
    public const string Collection = "collection";
    public const string Faults = "page faults";
    public const string Processor = "no processor";
    public const string Compiling = "compiling";
    public const string Work = "its work";
    public const string Unknown = "unknown";

    /// <summary>All reasons.</summary>
    public static IReadOnlyList<string> Reasons { get; } = [Collection, Faults, Processor, Compiling, Work, Unknown];

    /// <summary>Determines the reason from what was counted between some time before the stall began and its end.</summary>
    public static Stall Of(string what, string where, TimeSpan length, Vitals before, Vitals after)
    {
        var span = Stopwatch.GetElapsedTime(before.At, after.At);
        var paused = after.Paused - before.Paused;
        var compiled = after.Compiled - before.Compiled;
        var pressed = after.Pressed - before.Pressed;
        var (ran, waited) = (after.ThreadRan - before.ThreadRan, after.ThreadWaited - before.ThreadWaited);
        var (faults, allFaults) = (after.ThreadMajorFaults - before.ThreadMajorFaults, after.MajorFaults - before.MajorFaults);
        var half = length / 2;
        var isOfThread = after.ThreadRan > TimeSpan.Zero;
        // Neither running nor waiting for a processor, so it slept; if it had page faults, it slept for those pages.
        var slept = span - ran - waited;
        var reason = paused >= half ? Collection
            : isOfThread && faults > 0 && slept >= half ? Faults
            : isOfThread && waited >= half ? Processor
            : compiled >= half ? Compiling
            : isOfThread && ran >= half ? Work
            : !isOfThread && pressed >= half ? Processor
            : Unknown;
        var text = string.Create(
            CultureInfo.InvariantCulture,
            $"{reason}; within {Ms(span)} ms the process paused {Ms(paused)} ms for collections, compiled for {Ms(compiled)} ms and took {allFaults} major "
            + $"faults, and the machine lacked processors for {Ms(pressed)} ms");
        if (isOfThread)
            text += string.Create(
                CultureInfo.InvariantCulture, $"; the thread ran {Ms(ran)} ms, waited {Ms(waited)} ms for a processor and took {faults} major faults");
        return new Stall(what, where, length, reason, text);
    }

    public override string ToString() => string.Create(
        CultureInfo.InvariantCulture, $"the node's {What} stalled for {Ms(Length)} ms{(Where.Length == 0 ? "" : $" ({Where})")}: {Text}");

    private static double Ms(TimeSpan time) => Math.Round(time.TotalMilliseconds);
}
