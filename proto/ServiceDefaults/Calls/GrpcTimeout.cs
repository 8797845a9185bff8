using System.Globalization;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>The header <c>grpc-timeout</c>: at most eight digits and a unit.</summary>
internal static class GrpcTimeout
{
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
}
