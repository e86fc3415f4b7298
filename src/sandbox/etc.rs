//! The generated /etc: what libc, resolvers and runtimes look for, the same on every machine. Text only.
#![forbid(unsafe_code)]

use crate::model::guise::{Guise, NOBODY, Shape};

/// Files of /etc, name and content. What the policy shows of the host's /etc is mounted beside them.
pub(super) const FILES: [(&str, &str); 5] = [
    (
        "nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n",
    ),
    ("host.conf", "multi on\n"),
    ("shells", "/bin/sh\n/bin/bash\n"),
    (
        "protocols",
        "ip\t0\tIP\nicmp\t1\tICMP\nigmp\t2\tIGMP\ntcp\t6\tTCP\negp\t8\tEGP\nudp\t17\tUDP\nipv6\t41\tIPv6\nipv6-route\t43\tIPv6-Route\nipv6-frag\t44\tIPv6-Frag\nesp\t50\tESP\nah\t51\tAH\nipv6-icmp\t58\tIPv6-ICMP\nipv6-nonxt\t59\tIPv6-NoNxt\nipv6-opts\t60\tIPv6-Opts\nsctp\t132\tSCTP\nudplite\t136\tUDPLite\n",
    ),
    (
        "services",
        "echo\t7/tcp\necho\t7/udp\ndiscard\t9/tcp\ndiscard\t9/udp\ndaytime\t13/tcp\nftp-data\t20/tcp\nftp\t21/tcp\nssh\t22/tcp\ntelnet\t23/tcp\nsmtp\t25/tcp\tmail\ntime\t37/tcp\ndomain\t53/tcp\ndomain\t53/udp\nbootps\t67/udp\nbootpc\t68/udp\ntftp\t69/udp\ngopher\t70/tcp\nfinger\t79/tcp\nhttp\t80/tcp\twww\nkerberos\t88/tcp\nkerberos\t88/udp\npop3\t110/tcp\nsunrpc\t111/tcp\nsunrpc\t111/udp\nnntp\t119/tcp\nntp\t123/udp\nimap2\t143/tcp\timap\nsnmp\t161/udp\nirc\t194/tcp\nldap\t389/tcp\nldap\t389/udp\nhttps\t443/tcp\nhttps\t443/udp\nsubmissions\t465/tcp\tssmtp smtps\nsyslog\t514/udp\nsubmission\t587/tcp\nldaps\t636/tcp\nimaps\t993/tcp\npop3s\t995/tcp\nsocks\t1080/tcp\nmysql\t3306/tcp\npostgresql\t5432/tcp\tpostgres\namqp\t5672/tcp\nhttp-alt\t8080/tcp\twebcache\n",
    ),
];

/// Files of /etc that go by what the check takes its surroundings for.
pub(super) fn of_guise(guise: &Guise) -> [(&'static str, String); 5] {
    let Guise { host_name, uid, .. } = guise;
    let mut users = vec![(0, "root", "/root", "/bin/sh")];
    let mut groups = vec![(0, "root"), (5, "tty")];
    if guise.user_name() == "check" {
        users.push((*uid, "check", "/home/check", "/bin/sh"));
        // The group of terminals has its name on every machine.
        groups.extend((*uid != 5).then_some((*uid, "check")));
    }
    // Uids that are not mapped show as 65534, so that number has a name too (user_namespaces(7)).
    users.push(match *uid {
        NOBODY => (NOBODY, "nobody", guise.home(), "/bin/sh"),
        _ => (NOBODY, "nobody", "/nonexistent", "/usr/sbin/nologin"),
    });
    groups.push((NOBODY, "nogroup"));
    let users =
        users.iter().map(|(uid, name, home, shell)| format!("{name}:x:{uid}:{uid}:{name}:{home}:{shell}\n"));
    let groups = groups.iter().map(|(gid, name)| format!("{name}:x:{gid}:\n"));
    let resolver = match guise.network {
        // Nobody listens on the name server's port of loopback, so a lookup is refused at once and not after a time-out.
        Shape::Loopback | Shape::Ipv4 => "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        // Nor does anybody here, and nothing says so.
        Shape::BlackHole => "nameserver 192.0.2.53\n",
    };
    [
        ("passwd", users.collect()),
        ("group", groups.collect()),
        // Both families of localhost, and the host name in both, so that a program that looks itself up finds loopback.
        (
            "hosts",
            format!(
                "127.0.0.1\tlocalhost {host_name}\n::1\tlocalhost ip6-localhost ip6-loopback {host_name}\n"
            ),
        ),
        ("hostname", format!("{host_name}\n")),
        ("resolv.conf", resolver.to_owned()),
    ]
}

/// Links of /etc, name and target; those whose target the host lacks dangle, which is what they do on the host.
pub(super) const LINKS: [(&str, &str); 3] = [
    ("localtime", "/usr/share/zoneinfo/UTC"),
    ("os-release", "../usr/lib/os-release"),
    ("mtab", "/proc/self/mounts"),
];
