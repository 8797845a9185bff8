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

    private static TimeSpan Of(string name, double seconds) => seconds is >= 0.001 and <= SecondsMax
        ? TimeSpan.FromSeconds(seconds)
        : throw new CliException(ExitCodes.Usage, $"{name} must be from 0.001 seconds to 100 years.");
}
