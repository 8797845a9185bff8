using System.CommandLine;
using System.Globalization;

namespace KvCluster.Cli;

/// <summary>The lifetime of keys on the command line, in seconds.</summary>
internal static class TimeToLive
{
    private const double SecondsMax = 100d * 365 * 86_400;

    /// <summary>The value of an option; null if it was not given.</summary>
    /// <exception cref="CliException">It is out of range.</exception>
    public static TimeSpan? Of(ParseResult arguments, Option<double?> option) => arguments.GetValue(option) is { } seconds ? Of(option.Name, seconds) : null;

    /// <summary>A lifetime in a text.</summary>
    /// <exception cref="CliException">It is not a number, or out of range.</exception>
    public static TimeSpan Parse(string name, string text) => TryParse(text, out var seconds)
        ? Of(name, seconds)
        : throw new CliException(ExitCodes.Usage, $"{name} '{text}' is not a number of seconds. Nothing was applied.");

    /// <summary>A number of seconds with a point before its fraction, and no separators.</summary>
    public static bool TryParse(string text, out double seconds) =>
        double.TryParse(
            text, NumberStyles.AllowLeadingSign | NumberStyles.AllowDecimalPoint | NumberStyles.AllowExponent, CultureInfo.InvariantCulture, out seconds);

    /// <summary>What a key has left in a file. Where it is less than a millisecond it is one, the least that a key can have.</summary>
    /// <exception cref="FormatException">It is too long. The message continues a sentence that begins with the line.</exception>
    public static TimeSpan OfMilliseconds(double milliseconds) => milliseconds <= SecondsMax * 1000
        ? TimeSpan.FromMilliseconds(Math.Max(1, milliseconds))
        : throw new FormatException("has a time left of more than 100 years");

    private static TimeSpan Of(string name, double seconds) => seconds is >= 0.001 and <= SecondsMax
        ? TimeSpan.FromSeconds(seconds)
        : throw new CliException(ExitCodes.Usage, $"{name} must be from 0.001 seconds to 100 years.");
}
