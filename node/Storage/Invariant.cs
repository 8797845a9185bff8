using System.Diagnostics.CodeAnalysis;
using System.Runtime.CompilerServices;
using System.Text;

namespace KvCluster.Storage;

/// <summary>Checks that stay on in release: a broken invariant ends the engine rather than writing on.</summary>
internal static class Invariant
{
    /// <summary>Throws <see cref="InvariantException"/> when the condition is false; the message is formatted only then.</summary>
    public static void Check([DoesNotReturnIf(false)] bool condition, [InterpolatedStringHandlerArgument(nameof(condition))] ref Message message)
    {
        if (!condition)
            throw new InvariantException(message.ToString());
    }

    /// <summary>Formats only for a condition that does not hold.</summary>
    [InterpolatedStringHandler]
    internal readonly ref struct Message
    {
        private readonly StringBuilder? _text;

        /// <summary>Called by the compiler.</summary>
        public Message(int literalLength, int formattedCount, bool condition, out bool format)
        {
            format = !condition;
            _text = condition ? null : new StringBuilder(literalLength + (formattedCount * 16));
        }

        /// <summary>Called by the compiler.</summary>
        public void AppendLiteral(string text) => _text!.Append(text);

        /// <summary>Called by the compiler.</summary>
        public void AppendFormatted<T>(T value) => _text!.Append(value);

        /// <inheritdoc/>
        public override string ToString() => _text?.ToString() ?? "";
    }
}
