using System.Globalization;
using System.Text.RegularExpressions;

namespace KvCluster.Tests.Chart;

/// <summary>docker-compose.yml: numbers in it that depend on each other.</summary>
public sealed partial class ComposeTests
{
    [Fact]
    public void StopGracePeriod_OfANode_IsLongerThanItsOwnGrace()
    {
        var compose = House.House.Read("docker-compose.yml");

        var killed = Seconds(KilledAfter().Match(compose));
        Assert.InRange(Seconds(StopGrace().Match(compose)), killed / 2, killed - 3);
    }

    private static int Seconds(Match match) => int.Parse(match.Groups[1].ValueSpan, CultureInfo.InvariantCulture);

    [GeneratedRegex("stop_grace_period: ([0-9]+)s")]
    private static partial Regex KilledAfter();

    [GeneratedRegex("KVCLUSTER_STOP_GRACE_SECONDS: \"([0-9]+)\"")]
    private static partial Regex StopGrace();
}
