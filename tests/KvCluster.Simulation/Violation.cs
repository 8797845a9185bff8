using System.Diagnostics.CodeAnalysis;
using System.Runtime.CompilerServices;

namespace KvCluster.Simulation;

/// <summary>A rule was broken. Ends the run.</summary>
internal sealed class Violation(Rule rule, string what) : Exception(what)
{
    // By rule, for the run on this thread.
    [ThreadStatic]
    private static long[]? _checked;

    public Rule Rule { get; } = rule;

    /// <summary>A run begins on this thread.</summary>
    public static void BeginCounting() => _checked = new long[Enum.GetValues<Rule>().Length];

    /// <summary>How often each rule was checked on this thread since <see cref="BeginCounting"/>.</summary>
    public static void CountInto(Tally tally)
    {
        for (var rule = 0; rule < _checked!.Length; rule++)
            tally.Add((Rule)rule, _checked[rule]);
    }

    /// <exception cref="Violation">The condition does not hold.</exception>
    public static void Unless(
        [DoesNotReturnIf(false)] bool condition, Rule rule, [InterpolatedStringHandlerArgument(nameof(condition))] ref Text what)
    {
        Count(rule);
        if (!condition)
            throw new Violation(rule, what.ToString());
    }

    /// <exception cref="Violation">The condition does not hold.</exception>
    public static void Unless([DoesNotReturnIf(false)] bool condition, Rule rule, string what)
    {
        Count(rule);
        if (!condition)
            throw new Violation(rule, what);
    }

    private static void Count(Rule rule)
    {
        if (_checked is { } counts)
            counts[(int)rule]++;
    }

    /// <summary>Text that is formatted only if the condition fails, because conditions are checked with every answer.</summary>
    [InterpolatedStringHandler]
    internal ref struct Text
    {
        private DefaultInterpolatedStringHandler _text;

        public Text(int literalLength, int formattedCount, bool condition, out bool failed)
        {
            failed = !condition;
            _text = failed ? new DefaultInterpolatedStringHandler(literalLength, formattedCount) : default;
        }

        public void AppendLiteral(string value) => _text.AppendLiteral(value);

        public void AppendFormatted<T>(T value) => _text.AppendFormatted(value);

        public override string ToString() => _text.ToStringAndClear();
    }
}
