using System.Diagnostics.CodeAnalysis;
using System.Runtime.CompilerServices;

namespace KvCluster.Simulation;

/// <summary>Something that must never happen was seen; ends the run.</summary>
internal sealed class Violation(Rule rule, string what) : Exception(what)
{
    public Rule Rule { get; } = rule;

    /// <exception cref="Violation">The condition does not hold.</exception>
    public static void Unless(
        [DoesNotReturnIf(false)] bool condition, Rule rule, [InterpolatedStringHandlerArgument(nameof(condition))] ref Text what)
    {
        if (!condition)
            throw new Violation(rule, what.ToString());
    }

    /// <exception cref="Violation">The condition does not hold.</exception>
    public static void Unless([DoesNotReturnIf(false)] bool condition, Rule rule, string what)
    {
        if (!condition)
            throw new Violation(rule, what);
    }

    /// <summary>Text that is only formatted when the condition fails: it is asked for with every answer.</summary>
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
