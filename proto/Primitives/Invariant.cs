using System.Diagnostics.CodeAnalysis;
using System.Runtime.CompilerServices;

namespace KvCluster;

/// <summary>Checks conditions that hold unless there is a bug. Also active in release builds; the text is formatted only on failure.</summary>
internal static class Invariant
{
    /// <exception cref="InvariantException">The condition does not hold.</exception>
    public static void Check([DoesNotReturnIf(false)] bool condition, [InterpolatedStringHandlerArgument(nameof(condition))] ref Text text)
    {
        if (!condition)
            throw new InvariantException(text.ToString());
    }

    /// <exception cref="InvariantException">The condition does not hold.</exception>
    public static void Check([DoesNotReturnIf(false)] bool condition, string text)
    {
        if (!condition)
            throw new InvariantException(text);
    }

    /// <summary>Called first by every method whose name ends in Locked.</summary>
    /// <exception cref="InvariantException">The calling thread does not hold the lock that the method needs.</exception>
    public static void CheckHeld(Lock held, [CallerMemberName] string method = "")
    {
        if (!held.IsHeldByCurrentThread)
            throw NotHeld(method);
    }

    /// <inheritdoc cref="CheckHeld(Lock, string)"/>
    public static void CheckHeld(object held, [CallerMemberName] string method = "")
    {
        if (!Monitor.IsEntered(held))
            throw NotHeld(method);
    }

    private static InvariantException NotHeld(string method) => new($"{method} was called by a thread that does not hold its lock.");

    /// <summary>Text that is only formatted when the condition fails.</summary>
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

        public void AppendFormatted<T>(T value, string? format) => _text.AppendFormatted(value, format);

        public override string ToString() => _text.ToStringAndClear();
    }
}

/// <summary>An invariant is broken, which is a bug. The replica stops; others are unaffected.</summary>
internal sealed class InvariantException(string message) : Exception(message);
