using System.Diagnostics;
using System.Globalization;

namespace KvCluster.Node.Telemetry;

/// <summary>Something of the node stood still for longer than it should.</summary>
/// <param name="What">"writer", "timers", "thread pool", or "process": the watch itself.</param>
/// <param name="Where">The thread and its item, for people; may be empty.</param>
/// <param name="Length">For how long.</param>
/// <param name="Reason">One of <see cref="Reasons"/>: what most of that time went to, as far as is known.</param>
/// <param name="Text">What is known, for people.</param>
internal sealed record Stall(string What, string Where, TimeSpan Length, string Reason, string Text)
{
    public const string Collection = "collection";
    public const string Faults = "page faults";
    public const string Processor = "no processor";
    public const string Compiling = "compiling";
    public const string Work = "its work";
    public const string Unknown = "unknown";

    /// <summary>All that there are.</summary>
    public static IReadOnlyList<string> Reasons { get; } = [Collection, Faults, Processor, Compiling, Work, Unknown];

    /// <summary>Judges by what was counted from some time before it began until it ended.</summary>
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
        // Neither on a processor nor waiting for one: asleep, and with faults, for pages.
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
            $"{reason}; within {Ms(span)} ms the process paused {Ms(paused)} ms for collections, compiled for {Ms(compiled)} ms and took {allFaults} major faults, and the machine lacked processors for {Ms(pressed)} ms");
        if (isOfThread)
            text += string.Create(CultureInfo.InvariantCulture, $"; the thread ran {Ms(ran)} ms, waited {Ms(waited)} ms for a processor and took {faults} major faults");
        return new Stall(what, where, length, reason, text);
    }

    public override string ToString() => string.Create(
        CultureInfo.InvariantCulture, $"the node's {What} stood still for {Ms(Length)} ms{(Where.Length == 0 ? "" : $" ({Where})")}: {Text}");

    private static double Ms(TimeSpan time) => Math.Round(time.TotalMilliseconds);
}
