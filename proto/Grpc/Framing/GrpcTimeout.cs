using System.Globalization;

namespace Grpc.Shared;

/// <summary>The header <c>grpc-timeout</c>: at most eight digits and a unit.</summary>
internal static class GrpcTimeout
{
    private const long DigitsMax = 99_999_999;

    /// <summary>Uses the finest unit in which the time fits in eight digits, rounded up so that the server never gives up first.</summary>
    public static string Format(TimeSpan timeout)
    {
        if (timeout <= TimeSpan.Zero)
            return "1n";
        return Units(timeout.Ticks, TimeSpan.TicksPerMicrosecond) is <= DigitsMax and var microseconds ? Text(microseconds, 'u')
            : Units(timeout.Ticks, TimeSpan.TicksPerMillisecond) is <= DigitsMax and var milliseconds ? Text(milliseconds, 'm')
            : Units(timeout.Ticks, TimeSpan.TicksPerSecond) is <= DigitsMax and var seconds ? Text(seconds, 'S')
            : Text(Math.Min(Units(timeout.Ticks, TimeSpan.TicksPerHour), DigitsMax), 'H');
    }

    /// <summary>Returns false if the text is not a timeout, which must then be ignored.</summary>
    public static bool TryParse(ReadOnlySpan<char> text, out TimeSpan timeout)
    {
        timeout = default;
        if (text.Length is < 2 or > 9 || !long.TryParse(text[..^1], NumberStyles.None, CultureInfo.InvariantCulture, out var digits))
            return false;
        long? ticksPerUnit = text[^1] switch
        {
            'n' => 0,
            'u' => TimeSpan.TicksPerMicrosecond,
            'm' => TimeSpan.TicksPerMillisecond,
            'S' => TimeSpan.TicksPerSecond,
            'M' => TimeSpan.TicksPerMinute,
            'H' => TimeSpan.TicksPerHour,
            _ => null,
        };
        if (ticksPerUnit is not { } factor)
            return false;
        timeout = TimeSpan.FromTicks(factor == 0 ? digits / TimeSpan.NanosecondsPerTick : digits * factor);
        return true;
    }

    private static long Units(long ticks, long ticksPerUnit) => ((ticks - 1) / ticksPerUnit) + 1;

    private static string Text(long count, char unit) => string.Create(CultureInfo.InvariantCulture, $"{count}{unit}");
}
